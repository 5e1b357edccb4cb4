//! Size limits of the ephemeral image. A build over a limit fails, and so does the test of the built image.

/// Largest size in bytes of each file of the ephemeral image, by role.
pub(crate) const BUDGETS: [(&str, u64); 3] = [
    // Debian's amd64 kernel takes 8 MiB. The loader fetches it at about 10 MB/s, so this is 1.2 s.
    ("kernel", 12 << 20),
    // The loader fetches it, by far the slowest part of the way: iPXE reaches about 10 MB/s on real firmware, so this is
    // 3 s. All wired drivers and their firmware take 22 MiB, agent and busybox, compressed, 2 MiB.
    ("initrd", 32 << 20),
    // The agent fetches it, 1.4 s at 1 Gbit/s, and it stays in memory: a machine of 2 GiB keeps nine tenths of it. Modules
    // take 60 MiB, firmware 40 MiB, programs the rest.
    ("squashfs", 160 << 20),
];
