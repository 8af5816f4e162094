//! SMG's own exporter as a process, for tests.
//!
//!     stock_exporter PORT SLOTS SLOT_BYTES TTL_SECONDS [AGENT_NAME]
//!
//! Prints `ready`, then answers each line `KEY NBYTES` on standard input by
//!
//!     ok DESCRIPTOR NANOSECONDS BEGAN FILL_CPU
//!
//! or `full`: how long the export took, when it began by CLOCK_MONOTONIC, in nanoseconds, and how many seconds of CPU
//! making the bytes cost before that. For benchmarks the two are apart: `fill KEY NBYTES 1` is answered by `filled`, then
//! `go` as above. What it exports is pattern(KEY, NBYTES), which tests/peers/stock.py makes too. Ends with its input.

use std::io::{self, BufRead, Write};
use std::time::Duration;

use smg_mm_rdma::{RdmaConfig, RdmaExporter};

/// The finalizer of MurmurHash3: neighbouring words have nothing in common.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

fn pattern(key: i64, nbytes: usize) -> Vec<u8> {
    let start = mix(key as u64);
    let words = (0..nbytes.div_ceil(8) as u64).map(|i| mix(start.wrapping_add(i)));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(nbytes);
    bytes
}

fn say(line: &str) {
    println!("{line}");
    io::stdout().flush().expect("standard output");
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

const MONOTONIC: i32 = 1;
const THREAD_CPU: i32 = 3;

/// In nanoseconds.
fn now(clock: i32) -> i64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    assert_eq!(unsafe { clock_gettime(clock, &mut time) }, 0);
    time.seconds * 1_000_000_000 + time.nanoseconds
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let exporter = RdmaExporter::new(RdmaConfig {
        listen_ip: "127.0.0.1".into(),
        listen_port: args[1].parse().expect("PORT"),
        agent_name: args.get(5).map_or("smg-gateway-encode", String::as_str).into(),
        pool_slots: args[2].parse().expect("SLOTS"),
        slot_bytes: args[3].parse().expect("SLOT_BYTES"),
        slot_ttl: Duration::from_secs_f64(args[4].parse().expect("TTL_SECONDS")),
    })
    .expect("the exporter");
    say("ready");
    let mut filled = None;
    for line in io::stdin().lock().lines() {
        let line = line.expect("standard input");
        let words: Vec<&str> = line.split(' ').collect();
        let (key, bytes, fill_cpu): (i64, Vec<u8>, i64) = match words[..] {
            ["go"] => filled.take().expect("fill comes first"),
            [key, nbytes] | ["fill", key, nbytes, "1"] => {
                let began = now(THREAD_CPU);
                let key = key.parse().expect("KEY");
                let bytes = pattern(key, nbytes.parse().expect("NBYTES"));
                (key, bytes, now(THREAD_CPU) - began)
            }
            _ => panic!("not understood: {line}"),
        };
        if words[0] == "fill" {
            filled = Some((key, bytes, fill_cpu));
            say("filled");
            continue;
        }
        let began = now(MONOTONIC);
        match exporter.export(key, bytes) {
            Ok(descriptor) => {
                let took = now(MONOTONIC) - began;
                let hex: String = descriptor.iter().map(|b| format!("{b:02x}")).collect();
                say(&format!("ok {hex} {took} {began} {:.9}", fill_cpu as f64 * 1e-9));
            }
            Err(_) => say("full"),
        }
    }
}
