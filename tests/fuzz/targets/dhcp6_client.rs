//! See `basalt_fuzz::dhcp6_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::dhcp6_client(data));
