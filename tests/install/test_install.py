"""What an installed copy is worth to a program that uses it, found in each of the documented ways."""

import os
import re
from pathlib import Path

import pytest
from ferry import printed

ROOT = Path(__file__).parents[2]
CONSUMER = Path(__file__).parent / "consumer"
EXPECTED = "local 3145728 same\ntcp 3145728 same\n"


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    return printed(*command, env={**os.environ, **(env or {})})


@pytest.fixture(scope="module", params=["build", "build-shared"], ids=["static", "shared"])
def prefix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installed copy. Its path is not the one that it was configured for."""
    path = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", ROOT / request.param, "--prefix", path)
    return path


def library_dir(prefix: Path) -> Path:
    return next(prefix.rglob("libtensorferry.*")).parent


def cmake_build(tmp_path: Path, *options: str) -> Path:
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", tmp_path / "build", *options)
    run("ninja", "-C", tmp_path / "build")
    return tmp_path / "build" / "consumer"


def test_find_package(prefix: Path, tmp_path: Path) -> None:
    consumer = cmake_build(tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    assert run(consumer, tmp_path / "socket") == EXPECTED
    assert run(consumer.with_name("grpc_consumer")) == "3 too many dimensions\n"
    assert run(consumer.with_name("metrics_consumer")) == "127.0.0.1 2\n"


def test_find_package_refuses_another_minor_version(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\n"
        "project(other LANGUAGES CXX)\n"
        "find_package(tensorferry 0.0 CONFIG QUIET)\n"
        'if(tensorferry_FOUND OR NOT "0.1.0" IN_LIST tensorferry_CONSIDERED_VERSIONS)\n'
        '  message(FATAL_ERROR "${tensorferry_CONSIDERED_VERSIONS}")\n'
        "endif()\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")


def test_pkg_config(prefix: Path, tmp_path: Path) -> None:
    libraries = library_dir(prefix)
    static = ["--static"] if (libraries / "libtensorferry.a").exists() else []
    env = {"PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", *static, "tensorferry", env=env).split()
    consumer = tmp_path / "consumer"
    run("g++", "-std=c++20", CONSUMER / "consumer.cc", *flags, "-o", consumer)
    assert run(consumer, tmp_path / "socket", env={"LD_LIBRARY_PATH": str(libraries)}) == EXPECTED


def test_the_command_runs(prefix: Path) -> None:
    assert run(prefix / "bin" / "tensorferry", "--version").strip().endswith("0.1.0")


def test_only_the_module_links_ucx_and_the_command_finds_it(prefix: Path) -> None:
    binaries = [path for path in prefix.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    linked = [path.name for path in binaries if "libucp" in run("readelf", "-d", path)]
    assert linked == ["libtensorferry_ucx.so"]
    doctor = run(prefix / "bin" / "tensorferry", "doctor", "--engine", "tcp,ucx")
    assert re.search(r"remote +ucx +(ok|degraded)", doctor), doctor


def test_headers_are_complete_and_hold_no_test_helpers(prefix: Path, tmp_path: Path) -> None:
    headers = [path.relative_to(prefix / "include") for path in (prefix / "include").rglob("*.h")]
    assert Path("tensorferry/exporter/exporter.h") in headers
    assert not [path for path in headers if path.name.endswith("_testing.h")]
    source = tmp_path / "all.cc"
    source.write_text("".join(f'#include "{header}"\n' for header in sorted(headers)))
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    run("g++", *flags, f"-I{prefix / 'include'}", source)


LIBRARIES = {"": "libtensorferry", "grpc": "libtensorferry_grpc", "prometheus": "libtensorferry_prometheus"}


@pytest.mark.parametrize("room", LIBRARIES)
def test_a_shared_library_shows_what_its_headers_export(room: str, tmp_path: Path) -> None:
    run("cmake", "--install", ROOT / "build-shared", "--prefix", tmp_path)
    library = library_dir(tmp_path) / f"{LIBRARIES[room]}.so"
    assert f"Library soname: [{LIBRARIES[room]}.so.0.1]" in run("readelf", "--dynamic", library)
    assert library.resolve().name == f"{LIBRARIES[room]}.so.0.1.0"
    headers = "".join(path.read_text() for path in (tmp_path / "include" / "tensorferry" / room).rglob("*.h"))
    shown = run("nm", "--dynamic", "--defined-only", "--demangle", library)
    # Not the weak ones, which the compiler makes of templates of the standard library.
    symbols = re.findall(r"^[0-9a-f]+ [^WVu] (?:(?:vtable|typeinfo)(?: name)? for )?(.+)", shown, re.MULTILINE)
    assert len(symbols) >= {"": 150, "grpc": 10, "prometheus": 5}[room]
    for symbol in symbols:
        names = re.sub(r"\(.*|\[abi:cxx11\]", "", symbol).split("::")
        assert names.pop(0) == "tensorferry", symbol
        marked = next(name for name in names if name != "engine")  # a class, or a function of none
        assert re.search(rf"TENSORFERRY_EXPORT[^;{{]*\b{marked}\b", headers), symbol


@pytest.mark.timeout(900)
def test_as_a_part_of_another_build(tmp_path: Path) -> None:
    consumer = cmake_build(tmp_path, f"-DTENSORFERRY_SOURCE={ROOT}", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    assert run(consumer, tmp_path / "socket") == EXPECTED
