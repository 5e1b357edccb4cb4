//! Content of the images, with reasons.

/// Firmware of network adapters and storage controllers: every such package of Debian 12. Firmware for wireless, Bluetooth, graphics and
/// sound is left out: no machine boots from such devices. `tests/tests/images.rs` compares this list with all firmware of the release.
pub(super) const FIRMWARE: [&str; 10] = [
    "firmware-bnx2",         // Broadcom NetXtreme II, 1 Gbit/s
    "firmware-bnx2x",        // Broadcom NetXtreme II, 10 Gbit/s
    "firmware-cavium",       // Cavium LiquidIO, Nitrox
    "firmware-linux-free",   // free firmware, among it that of old adapters
    "firmware-misc-nonfree", // Intel 800 series, Chelsio, Brocade, 3Com, and others
    "firmware-myricom",      // Myri-10G
    "firmware-netronome",    // Netronome and Corigine Agilio
    "firmware-netxen",       // QLogic NetXen
    "firmware-qlogic",       // QLogic FastLinQ, Fibre Channel, iSCSI
    "firmware-realtek",      // Realtek 1 to 5 Gbit/s
];

/// The ephemeral root. Packages are unpacked, not configured: only the agent is started.
pub(super) const EPHEMERAL: [&str; 36] = [
    "linux-image-amd64", // not the cloud kernel, which knows neither IPMI nor most controllers
    "busybox-static",    // in the initrd: mount, ip, udhcpc
    "kmod",              // the kernel's own requests for modules
    "libc-bin",          // ldconfig's result: programs start faster
    "coreutils",         // chroot
    "util-linux",        // blockdev, wipefs, lsblk
    "mount",
    "dash",  // scripts
    "fdisk", // sfdisk
    "e2fsprogs",
    "xfsprogs",
    "dosfstools",
    "mdadm",
    "lvm2",
    "tar",
    "zstd",
    "gzip",
    "bzip2",
    "xz-utils",
    "efibootmgr",
    "ipmitool",
    "nvme-cli",
    "hdparm",
    "ca-certificates",
    "bash", // and what follows: people's scripts
    "sed",
    "grep",
    "mawk",
    "findutils",
    "procps",
    "curl",
    "pciutils",
    "dmidecode",
    "ethtool",
    "smartmontools",
    "dropbear-bin", // the rescue environment
];

/// Excluded from the ephemeral root: documentation, translations and data of package tools. The root runs only for the time of a task.
pub(super) const UNREAD: [&str; 12] = [
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/i18n",
    "usr/share/zsh",
    "usr/share/bash-completion",
    "usr/share/lintian",
    "usr/share/perl",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "var/lib/apt",
];

/// Directories of kernel modules that are excluded from the ephemeral root: a third of its size.
pub(super) const UNUSED_MODULES: [&str; 20] = [
    "sound",
    "net/bluetooth",
    "net/mac80211",
    "net/wireless",
    "drivers/accessibility",
    "drivers/bluetooth",
    "drivers/comedi",
    "drivers/gpu", // GPUs are recognised by their PCI identity; the console is the firmware's framebuffer
    "drivers/iio",
    "drivers/isdn",
    "drivers/media",
    "drivers/net/wireless",
    "drivers/nfc",
    "drivers/staging/r8188eu", // wireless, but for a card reader; qlge stays, a server's adapter
    "drivers/staging/rtl8192e",
    "drivers/staging/rtl8192u",
    "drivers/staging/rtl8723bs",
    "drivers/staging/rts5208",
    "drivers/staging/vt6656",
    "drivers/staging/wlan-ng",
];

/// Firmware of excluded modules, in packages that are needed for other modules.
pub(super) const UNUSED_FIRMWARE: [&str; 12] = [
    "amdgpu", "av7110", "dsp56k", "i915", "mediatek", "nvidia", "radeon", "rtl_bt", "rtlwifi", "rtw88",
    "rtw89", "wfx",
];

/// Modules of the initrd, as paths below `kernel/`: every wired adapter with its dependencies, and the file systems for the next boot
/// stage.
pub(super) const INITRD_MODULES: [&str; 17] = [
    "drivers/net/ethernet",
    "drivers/staging/qlge", // QLogic 8000 series
    "drivers/net/phy",      // found by their adapters at run time
    "drivers/net/mdio",
    "drivers/net/pcs",
    "drivers/net/usb", // adapters of small machines and of BMCs
    "drivers/net/hyperv",
    "drivers/net/vmxnet3",
    "drivers/net/fjes",
    "drivers/net/virtio_net.ko",
    "drivers/net/xen-netfront.ko",
    "drivers/virtio", // virtio over PCI and MMIO
    "drivers/hv/hv_vmbus.ko",
    "drivers/pci/controller", // adapters behind Intel VMD, Hyper-V pass-through
    "drivers/usb/host",
    "drivers/infiniband/hw", // adapters whose network half needs the other half's module
    "fs/overlayfs",
];

/// Modules outside the initrd's compressed file system, which make it readable. The agent inserts them from `/early`.
pub(super) const EARLY_MODULES: [&str; 2] = ["drivers/block/loop.ko", "fs/squashfs/squashfs.ko"];

/// The installed Debian system.
pub(super) const SYSTEM: [&str; 34] = [
    "linux-image-amd64",
    "initramfs-tools",
    "zstd", // of the initramfs: faster to read at every boot
    "systemd-sysv",
    "libpam-systemd",
    "dbus",
    "udev",
    "kmod",
    "netplan.io",
    "systemd-resolved", // netplan's name servers
    "systemd-timesyncd",
    "cloud-init",
    "cloud-guest-utils",
    "openssh-server",
    "sudo",
    "ca-certificates",
    "curl", // reports of an installed system
    "iproute2",
    "iputils-ping",
    "less",
    "vim-tiny",
    "procps",
    "fdisk",
    "e2fsprogs",
    "dosfstools",
    "xfsprogs",
    "mdadm", // systems on RAIDs and volumes: their initramfs has to know them
    "lvm2",
    "grub2-common",
    "grub-common",
    "grub-pc-bin", // either firmware boots it: the agent installs both
    "grub-efi-amd64-bin",
    "efibootmgr",
    "lsb-release",
];

/// Paths that are excluded from the installed system: files and drivers that servers do not need. This saves two fifths of the image's size
/// and time when it is unpacked.
pub(super) const SYSTEM_EXCLUDED: [&str; 21] = [
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/lintian/*",
    "/usr/share/help/*",
    "/usr/share/locale/*/LC_MESSAGES/*",
    "/lib/firmware/i915/*",
    "/lib/firmware/nvidia/*",
    "/lib/firmware/mediatek/*",
    "/lib/firmware/rtw8*",
    "/lib/firmware/netronome/*", // 140 MB for one vendor: install firmware-netronome again where it is needed
    "/lib/modules/*/kernel/sound/*",
    "/lib/modules/*/kernel/net/bluetooth/*",
    "/lib/modules/*/kernel/net/mac80211/*",
    "/lib/modules/*/kernel/net/wireless/*",
    "/lib/modules/*/kernel/drivers/bluetooth/*",
    "/lib/modules/*/kernel/drivers/comedi/*",
    "/lib/modules/*/kernel/drivers/iio/*",
    "/lib/modules/*/kernel/drivers/media/*",
    "/lib/modules/*/kernel/drivers/net/wireless/*",
    "/lib/modules/*/kernel/drivers/staging/*",
];

/// Paths that are kept although an excluded path contains them.
pub(super) const SYSTEM_INCLUDED: [&str; 2] =
    ["/usr/share/doc/*/copyright", "/lib/modules/*/kernel/drivers/staging/qlge/*"];
