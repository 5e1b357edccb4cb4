//! See `basalt_fuzz::ntp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::ntp(data));
