//! See `basalt_fuzz::bmc_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::bmc_client(data));
