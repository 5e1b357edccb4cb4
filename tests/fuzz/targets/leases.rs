//! See `basalt_fuzz::leases`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::leases(data));
