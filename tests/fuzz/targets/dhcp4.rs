//! See `basalt_fuzz::dhcp4`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::dhcp4(data));
