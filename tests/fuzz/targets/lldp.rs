//! See `basalt_fuzz::lldp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::lldp(data));
