//! The disks that an install writes to.

use std::collections::BTreeMap;

use basalt_api::agent::{Disk, DiskSelector, FailureCode};
use basalt_api::disk::{ChoiceError, choose_disks};

use crate::failure::Failure;

/// Chooses a disk for each entry of a layout, by the rules of [`choose_disks`].
///
/// # Errors
/// [`FailureCode::AmbiguousDisk`]: a name does not select a single disk. [`FailureCode::NoDisk`]: no disk fits; the message names each with
/// the reason.
pub fn select<'a>(
    disks: &'a [Disk],
    wanted: &BTreeMap<String, DiskSelector>,
) -> Result<BTreeMap<String, &'a Disk>, Failure> {
    let names: Vec<_> = disks.iter().map(Disk::names).collect();
    let chosen = choose_disks(&names, wanted).map_err(|error| {
        let code = match error {
            ChoiceError::Names(_) => FailureCode::AmbiguousDisk,
            ChoiceError::NoDisk { .. } => FailureCode::NoDisk,
        };
        Failure::new(code, error.to_string())
    })?;
    let disk = |(entry, kernel)| Some((entry, disks.iter().find(|disk| disk.name == kernel)?));
    Ok(chosen.into_iter().filter_map(disk).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks() -> Vec<Disk> {
        [("sda", 8, "A"), ("sdb", 4, "B"), ("sdc", 4, "C"), ("sdd", 1, "D")]
            .map(|(name, gib, serial)| Disk {
                name: name.to_owned(),
                size_bytes: gib << 30,
                serial: serial.to_owned(),
                ids: vec![format!("ata-X_{serial}")],
                ..Disk::default()
            })
            .to_vec()
    }

    fn chosen(selector: DiskSelector) -> Result<String, String> {
        let min_bytes = Some(selector.min_bytes.unwrap_or(2 << 30));
        all(&[("system", DiskSelector { min_bytes, ..selector })]).map(|mut names| names.remove(0))
    }

    /// The disks for these names, in their order.
    fn all(wanted: &[(&str, DiskSelector)]) -> Result<Vec<String>, String> {
        let names = wanted.iter().map(|(name, selector)| ((*name).to_owned(), selector.clone())).collect();
        let disks = disks();
        let chosen = select(&disks, &names).map_err(|failure| failure.message)?;
        Ok(wanted.iter().map(|(name, _)| chosen[*name].name.clone()).collect())
    }

    fn sized(gib: u64) -> DiskSelector {
        DiskSelector { min_bytes: Some(gib << 30), ..DiskSelector::default() }
    }

    fn named(name: &str) -> DiskSelector {
        DiskSelector { name: Some(name.to_owned()), ..DiskSelector::default() }
    }

    #[test]
    fn the_smallest_that_is_large_enough() {
        assert_eq!(chosen(DiskSelector::default()).as_deref(), Ok("sdb"));
        assert_eq!(chosen(sized(5)).as_deref(), Ok("sda"));
    }

    #[test]
    fn by_name_by_id_and_by_serial_number() {
        for name in ["sdc", "/dev/sdc", "ata-X_C", "/dev/disk/by-id/ata-X_C", "C"] {
            assert_eq!(chosen(named(name)).as_deref(), Ok("sdc"), "{name}");
        }
    }

    #[test]
    fn several_get_a_disk_each_and_who_can_take_few_comes_first() {
        assert_eq!(all(&[("a", sized(0)), ("b", sized(0))]).unwrap(), ["sdd", "sdb"]);
        assert_eq!(all(&[("a", sized(1)), ("b", sized(4)), ("c", sized(3))]).unwrap(), ["sdd", "sdb", "sdc"]);
        assert_eq!(all(&[("a", sized(4)), ("b", named("B"))]).unwrap(), ["sdc", "sdb"]);
    }

    #[test]
    fn a_name_of_several_disks_is_refused_whatever_their_sizes() {
        let mut disks = disks();
        for disk in &mut disks {
            disk.serial = "A".to_owned();
        }
        let refused = |wanted: &[(&str, DiskSelector)]| {
            let wanted = wanted.iter().map(|(entry, it)| ((*entry).to_owned(), it.clone())).collect();
            select(&disks, &wanted).unwrap_err()
        };
        let both = [("a", named("A")), ("b", named("A"))];
        for wanted in
            [&both[..], &both[..1], &[("disk", DiskSelector { min_bytes: Some(8 << 30), ..named("A") })]]
        {
            let failure = refused(wanted);
            assert_eq!(failure.code, FailureCode::AmbiguousDisk);
            let candidates = r#""A" is the name of several disks: sda of 8589 MB (ata-X_A), sdb of 4294 MB"#;
            assert!(failure.message.contains(candidates), "{failure}");
        }
    }

    #[test]
    fn two_names_of_one_disk_and_an_empty_name_are_refused() {
        let message = all(&[("a", named("sdb")), ("b", named("B"))]).unwrap_err();
        assert!(message.starts_with(r#"b: "B" is disk sdb, which "a" names already"#), "{message}");
        let mut disks = disks();
        disks.iter_mut().for_each(|disk| disk.serial.clear());
        let wanted = BTreeMap::from([("disk".to_owned(), named(""))]);
        let failure = select(&disks, &wanted).unwrap_err();
        assert!(failure.message.starts_with(r#"disk: "" names no disk"#), "{failure}");
    }

    #[test]
    fn says_of_every_disk_why_it_is_not_the_one() {
        let message = chosen(named("D")).unwrap_err();
        assert!(message.starts_with("no disk to install to: sda is not D"), "{message}");
        assert!(message.contains("sdd has 1073741824 bytes, 2147483648 are needed"), "{message}");
    }
}
