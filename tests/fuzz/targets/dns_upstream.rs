//! See `basalt_fuzz::dns_upstream`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::dns_upstream(data));
