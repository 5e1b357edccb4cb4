//! See `basalt_fuzz::dhcp4_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::dhcp4_client(data));
