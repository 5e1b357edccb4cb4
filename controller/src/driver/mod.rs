//! The engine's driver reads objects, plans, does the next step, and writes the documents for racks.
//!
//! The rooms stand in an order, and each imports only from those above it ([`ROOMS`]):
//!
//! | room | is |
//! | --- | --- |
//! | `kill`, [`meters`], `status`, `stored`, [`unread`] | places where crash tests kill the process; counters; conditions; stored specs |
//! | [`topology`] | the estate: everything that is the same for all machines, kept in memory |
//! | [`zones`] | zones of the DNS: their content, and their publication |
//! | [`machine`] | the planner's input: the data of one machine, read from the store and computed |
//! | [`entries`] | the documents for racks: concerns, and the entries of machines |
//! | `tasks` | the data of tasks beside the plan: packages, logs, proxy |
//! | [`allocate`] | machines for deployments, decided in rounds |
//! | [`context`] | the services and data of every handler |
//! | [`poison`] | objects whose handling fails |
//! | [`reconcile`] | the reconciliation of one object of each kind |
//! | [`wake`] | wake-ups of objects that depend on changed ones |
//! | [`answers`] | plans, waits, histories and decisions for the API. They only read |
//! | [`run`] | the loop: claim objects that are due, handle them, finish the wake-ups that were seen |

pub mod allocate;
pub mod answers;
pub mod context;
pub mod entries;
pub mod kill;
pub mod machine;
pub mod meters;
pub mod poison;
pub mod reconcile;
pub mod run;
mod status;
mod stored;
mod tasks;
pub mod topology;
pub mod unread;
pub mod wake;
pub mod zones;

pub use answers::machinery::{Answer, Choices, Judged, Machinery, SupposedState};
pub use context::Driver;
pub use machine::operation::RequestedOperation;
pub use reconcile::{ALSO_WORKED_ON, RECONCILED};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// The rooms in their order.
    const ROOMS: [&str; 17] = [
        "kill",
        "meters",
        "status",
        "stored",
        "unread",
        "topology",
        "zones",
        "machine",
        "entries",
        "tasks",
        "allocate",
        "context",
        "poison",
        "reconcile",
        "wake",
        "answers",
        "run",
    ];

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => sources(&entry, found),
                false => found.push(entry),
            }
        }
    }

    #[test]
    fn a_room_imports_only_from_those_before_it() {
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver");
        let mut files = Vec::new();
        sources(&driver, &mut files);
        let (mut rooms, mut back) = (BTreeSet::new(), Vec::new());
        let place = |room: &str| ROOMS.iter().position(|it| *it == room);
        for file in files.iter().filter(|file| **file != driver.join("mod.rs")) {
            let path = file.strip_prefix(&driver).unwrap();
            let room = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
            let own = place(room).unwrap_or_else(|| panic!("{room} has no place in ROOMS"));
            rooms.insert(room.to_owned());
            let text = fs::read_to_string(file).unwrap();
            let imports = text.split("crate::driver::").skip(1);
            let imports = imports.flat_map(|rest| match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap().split(", ").collect(),
                None => vec![rest],
            });
            let named =
                imports.map(|it| it.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap());
            for other in named.filter(|other| place(other).is_none_or(|other| other > own)) {
                back.push(format!("{} imports {other}", path.display()));
            }
        }
        assert_eq!(back, Vec::<String>::new());
        assert_eq!(rooms.len(), ROOMS.len(), "{rooms:?}");
    }
}
