//! Disks of a task. [`select`] chooses them, [`rules`] decides if they may be written, and a marker is written to each first.

pub mod marker;
pub mod rules;
pub mod select;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use basalt_api::agent::{Disk, DiskMarker, MarkerState, Task};
use rustix::fs::{FallocateFlags, fallocate};

use crate::failure::Failure;
use crate::inventory;
use crate::root::Root;

use rules::{Observed, Permit};

const MIB: u64 = 1 << 20;

/// The machine's disks during one task.
#[derive(Debug)]
pub struct Disks {
    root: Root,
    wrote: bool,
}

impl Disks {
    /// The disks before any write.
    #[must_use]
    pub fn new(root: Root) -> Self {
        Self { root, wrote: false }
    }

    /// The disks that the kernel sees now.
    #[must_use]
    pub fn devices(&self) -> Vec<Disk> {
        inventory::block_devices(&self.root)
    }

    /// The device file of a disk.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path(Path::new("dev").join(name))
    }

    /// The marker and content of each disk that the kernel sees now.
    ///
    /// # Errors
    /// A disk cannot be read.
    pub fn observe_all(&self) -> Result<Vec<Observed>, Failure> {
        self.devices().iter().map(|disk| self.observe(&disk.name)).collect()
    }

    /// The marker and content of one disk.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn observe(&self, name: &str) -> Result<Observed, Failure> {
        observe(name, &self.path(name)).map_err(Failure::disk(format!("reading disk {name}")))
    }

    /// Opens a disk for writing. Before this returns, the marker `writing` is durable on the disk.
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn begin(&mut self, name: &str, task: &Task, _permit: &Permit) -> Result<WritableDisk, Failure> {
        let failed = format!("writing the marker of disk {name}");
        let path = self.path(name);
        let mut file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(Failure::disk(&failed))?;
        let size = file.seek(SeekFrom::End(0)).map_err(Failure::disk(&failed))?;
        self.wrote = true;
        let disk = WritableDisk {
            file,
            size,
            path,
            marker: DiskMarker {
                machine_uid: task.machine_uid.clone(),
                attempt: task.attempt,
                state: MarkerState::Writing,
            },
        };
        disk.write_marker().map_err(Failure::disk(&failed))?;
        Ok(disk)
    }

    /// True if a disk was opened for writing.
    #[must_use]
    pub fn wrote(&self) -> bool {
        self.wrote
    }

    /// Every disk's marker, by kernel name.
    #[must_use]
    pub fn markers(&self) -> BTreeMap<String, DiskMarker> {
        let markers = self.devices().into_iter().filter_map(|disk| {
            let name = disk.name;
            let marker = self.observe(&name).ok()?.marker?;
            Some((name, marker))
        });
        markers.collect()
    }
}

fn observe(name: &str, path: &Path) -> io::Result<Observed> {
    let mut file = File::open(path)?;
    let size = file.seek(SeekFrom::End(0))?;
    let mut first = read_part(&mut file, 0, MIB)?;
    let at = usize::try_from(marker::OFFSET).unwrap_or(usize::MAX);
    let area = first.get_mut(at..at.saturating_add(marker::LENGTH));
    let marker = area.and_then(|area| {
        let marker = marker::decode(area)?;
        area.fill(0);
        Some(marker)
    });
    let last = read_part(&mut file, size.saturating_sub(MIB).max(MIB), MIB)?;
    let has_data = first.iter().chain(&last).any(|byte| *byte != 0);
    Ok(Observed { name: name.to_owned(), marker, has_data })
}

fn read_part(file: &mut File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A disk that carries this attempt's marker.
#[derive(Debug)]
pub struct WritableDisk {
    file: File,
    size: u64,
    path: PathBuf,
    marker: DiskMarker,
}

impl WritableDisk {
    /// Its device file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Zeroes a range, but leaves the marker unchanged.
    ///
    /// Uses the disk's own command if the disk promises zeroes afterwards. Otherwise the kernel writes them.
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn zero(&self, from: u64, length: u64) -> io::Result<()> {
        let end = from.saturating_add(length).min(self.size);
        let marker_end = marker::OFFSET + marker::LENGTH as u64;
        self.zero_range(from, end.min(marker::OFFSET))?;
        self.zero_range(from.max(marker_end), end)
    }

    fn zero_range(&self, from: u64, end: u64) -> io::Result<()> {
        let Some(length) = end.checked_sub(from).filter(|length| *length > 0) else { return Ok(()) };
        let discard = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, discard, from, length).is_ok()
            || fallocate(&self.file, FallocateFlags::ZERO_RANGE, from, length).is_ok()
        {
            return Ok(());
        }
        let zeroes = vec![0; usize::try_from(length.min(4 * MIB)).unwrap_or(0)];
        let mut at = from;
        while at < end {
            let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeroes.len());
            self.file.write_all_at(zeroes.get(..part).unwrap_or_default(), at)?;
            at += part as u64;
        }
        Ok(())
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// The disk reports an error.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Writes the state of the attempt's end into the marker, after all other data is durable.
    ///
    /// # Errors
    /// The disk cannot be written.
    pub fn finish(mut self, state: MarkerState) -> io::Result<()> {
        self.sync()?;
        self.marker.state = state;
        self.write_marker()
    }

    fn write_marker(&self) -> io::Result<()> {
        let bytes = marker::encode(&self.marker).map_err(io::Error::other)?;
        self.file.write_all_at(&bytes, marker::OFFSET)?;
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use basalt_api::agent::{TaskAction, Then, Wipe};
    use rules::Verdict;

    use super::*;

    const SIZE: u64 = 8 * MIB;

    /// A directory tree with one disk, which is a file.
    fn lab(content: &[u8]) -> (tempfile::TempDir, Disks) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("sys/block/vda")).unwrap();
        std::fs::create_dir_all(dir.path().join("dev")).unwrap();
        std::fs::write(dir.path().join("sys/block/vda/size"), (SIZE / 512).to_string()).unwrap();
        let file = File::create(dir.path().join("dev/vda")).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.set_len(SIZE).unwrap();
        let disks = Disks::new(Root::at(dir.path()));
        (dir, disks)
    }

    fn task(attempt: u64) -> Task {
        Task {
            attempt,
            not_after_unix_ms: i64::MAX,
            machine_uid: "m".to_owned(),
            scripts: Vec::new(),
            proxy: None,
            bmc: None,
            action: TaskAction::Inventory,
            then: Then::Reboot,
        }
    }

    fn begin(disks: &mut Disks, attempt: u64) -> WritableDisk {
        let observed = disks.observe("vda").unwrap();
        match rules::install(&task(attempt), Wipe::Always, &[observed], &[]).unwrap() {
            Verdict::Proceed(permit) => disks.begin("vda", &task(attempt), &permit).unwrap(),
            Verdict::Superseded(attempt) => panic!("superseded by {attempt}"),
        }
    }

    #[test]
    fn an_all_zero_disk_has_no_data_and_no_marker() {
        let (_dir, disks) = lab(b"");
        assert_eq!(
            disks.observe("vda").unwrap(),
            Observed { name: "vda".to_owned(), marker: None, has_data: false }
        );
    }

    #[test]
    fn a_byte_in_the_first_or_last_mebibyte_is_data() {
        for at in [0, 511, marker::OFFSET, MIB - 1, SIZE - MIB, SIZE - 1] {
            let (_dir, disks) = lab(b"");
            OpenOptions::new().write(true).open(disks.path("vda")).unwrap().write_all_at(b"x", at).unwrap();
            assert!(disks.observe("vda").unwrap().has_data, "at {at}");
        }
    }

    #[test]
    fn the_marker_is_on_disk_as_soon_as_the_disk_is_open_and_is_no_data() {
        let (_dir, mut disks) = lab(b"");
        assert!(!disks.wrote());
        let disk = begin(&mut disks, 7);
        assert!(disks.wrote());
        let observed = disks.observe("vda").unwrap();
        assert_eq!(observed.marker.as_ref().unwrap().state, MarkerState::Writing);
        assert!(!observed.has_data);
        disk.finish(MarkerState::Installed).unwrap();
        assert_eq!(
            disks.markers()["vda"],
            DiskMarker { machine_uid: "m".to_owned(), attempt: 7, state: MarkerState::Installed }
        );
    }

    #[test]
    fn zeroing_the_disk_leaves_its_marker() {
        let (_dir, mut disks) = lab(&vec![7; 8 << 20]);
        let disk = begin(&mut disks, 7);
        disk.zero(0, SIZE).unwrap();
        let bytes = std::fs::read(disks.path("vda")).unwrap();
        let at = usize::try_from(marker::OFFSET).unwrap();
        assert!(marker::decode(&bytes[at..at + marker::LENGTH]).is_some());
        assert!(bytes[..at].iter().chain(&bytes[at + marker::LENGTH..]).all(|byte| *byte == 0));
        assert_eq!(bytes.len() as u64, SIZE);
    }

    #[test]
    fn zeroing_a_part_leaves_the_rest() {
        let (_dir, mut disks) = lab(&vec![7; 8 << 20]);
        begin(&mut disks, 7).zero(2 * MIB, MIB).unwrap();
        let bytes = std::fs::read(disks.path("vda")).unwrap();
        assert_eq!(
            (bytes[(2 << 20) - 1], bytes[2 << 20], bytes[(3 << 20) - 1], bytes[3 << 20]),
            (7, 0, 0, 7)
        );
    }
}
