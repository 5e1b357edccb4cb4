//! See `basalt_fuzz::smbios`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| basalt_fuzz::smbios(data));
