//! TPM, and Secure Boot of UEFI.

use crate::root::Root;

/// UEFI 2.10 §3.3: a variable of the vendor EFI_GLOBAL_VARIABLE.
const SECURE_BOOT: &str = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// The version of the first TPM; empty without one.
pub(super) fn tpm(root: &Root) -> String {
    match root.number::<u32>("sys/class/tpm/tpm0/tpm_version_major") {
        Some(1) => "1.2".to_owned(),
        Some(2) => "2.0".to_owned(),
        _ => String::new(),
    }
}

/// Four octets of attributes, then the value.
pub(super) fn secure_boot(root: &Root) -> Option<bool> {
    match *root.bytes(SECURE_BOOT)? {
        [_, _, _, _, value] => Some(value == 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpm_and_secure_boot_are_what_the_kernel_says() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        assert_eq!((tpm(&root).as_str(), secure_boot(&root)), ("", None));
        let write = |path: &str, bytes: &[u8]| {
            std::fs::create_dir_all(root.path(path).parent().unwrap()).unwrap();
            std::fs::write(root.path(path), bytes).unwrap();
        };
        write("sys/class/tpm/tpm0/tpm_version_major", b"2\n");
        write(SECURE_BOOT, &[6, 0, 0, 0, 1]);
        assert_eq!((tpm(&root).as_str(), secure_boot(&root)), ("2.0", Some(true)));
        write(SECURE_BOOT, &[6, 0, 0, 0, 0]);
        assert_eq!(secure_boot(&root), Some(false));
        write(SECURE_BOOT, &[6]);
        assert_eq!(secure_boot(&root), None);
    }
}
