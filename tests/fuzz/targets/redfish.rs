//! See `basalt_fuzz::redfish`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::redfish(data));
