//! SMG's own exporter as a process, for tests.
//!
//!     stock_exporter PORT SLOTS SLOT_BYTES TTL_SECONDS [AGENT_NAME]
//!
//! Prints `ready`, then answers each line `KEY NBYTES` on standard input by `ok DESCRIPTOR NANOSECONDS` or `full`.
//! What it exports is pattern(KEY, NBYTES), which tests/peers/stock.py makes too. Ends with its input.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

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
    for line in io::stdin().lock().lines() {
        let line = line.expect("standard input");
        let (key, nbytes) = line.split_once(' ').expect("KEY NBYTES");
        let key = key.parse().expect("KEY");
        let bytes = pattern(key, nbytes.parse().expect("NBYTES"));
        let start = Instant::now();
        match exporter.export(key, bytes) {
            Ok(descriptor) => {
                let took = start.elapsed().as_nanos();
                let hex: String = descriptor.iter().map(|b| format!("{b:02x}")).collect();
                say(&format!("ok {hex} {took}"));
            }
            Err(_) => say("full"),
        }
    }
}
