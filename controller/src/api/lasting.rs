//! Limits on long requests. One user or token gets a share of the places of each sort. Some places are reserved for admins, who must be
//! able to investigate when other callers hold all other places. (Watches have the same rule in `watch::hub`, which knows its readers.)

use super::caller::Caller;
use super::problem::{Answer, Refusal};
use super::rights::Role;
use basalt_proto::places::{Full, Limits, Place, Places};

/// A sort of long requests.
#[derive(Debug)]
pub(super) struct Lasting {
    /// The sort, as part of a sentence: "requests that follow a log".
    what: &'static str,
    usual: Places<String>,
    of_admins: Places<String>,
}

impl Lasting {
    fn new(what: &'static str, usual: Limits, of_admins: usize) -> Self {
        let of_admins = Limits { all: of_admins, of_one: of_admins.div_ceil(2) };
        Self { what, usual: Places::new(usual), of_admins: Places::new(of_admins) }
    }

    /// Reserves a place for a request of this caller. Hold it until the request ends.
    ///
    /// # Errors
    /// Fails if the caller has its share, or if all places are taken.
    pub(super) fn take(&self, caller: &Caller) -> Answer<Place<String>> {
        self.take_as(caller.holder(), caller.rights.unlimited())
    }

    fn take_as(&self, holder: String, role: Option<Role>) -> Answer<Place<String>> {
        let is_admin = role >= Some(Role::Admin);
        let full = match self.usual.try_take(Some(holder.clone())) {
            Ok(place) => return Ok(place),
            Err(full) => full,
        };
        if let (true, Ok(place)) = (is_admin, self.of_admins.try_take(Some(holder.clone()))) {
            return Ok(place);
        }
        let (Limits { all, of_one }, what) = (self.usual.limits(), self.what);
        Err(Refusal::unavailable(match full {
            Full::Client { .. } => {
                format!(
                    "{holder} has {of_one} {what} at this region, as many as one may have; end some of them"
                )
            }
            Full::All => format!("there are {all} {what} at this region, as many as it takes; try again"),
        }))
    }
}

/// All sorts except watches.
#[derive(Debug)]
pub(super) struct Rooms {
    /// Requests that follow events. Each one queries the database when something happens.
    pub(super) events: Lasting,
    /// Downloads of blobs. Each holds a file open.
    pub(super) downloads: Lasting,
    /// Requests that follow a log. Each one keeps a file open.
    pub(super) logs: Lasting,
    /// Requests with `wait`. Terraform sends one for each resource that it waits for.
    pub(super) waits: Lasting,
}

impl Default for Rooms {
    fn default() -> Self {
        Self {
            events: Lasting::new("requests that follow events", Limits { all: 200, of_one: 25 }, 20),
            downloads: Lasting::new("downloads of blobs", Limits { all: 256, of_one: 64 }, 32),
            logs: Lasting::new("requests that follow a log", Limits { all: 256, of_one: 32 }, 32),
            waits: Lasting::new("requests that wait", Limits { all: 2000, of_one: 250 }, 100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all places that it can get.
    fn all(room: &Lasting, holder: &str, role: Role) -> Vec<Place<String>> {
        std::iter::from_fn(|| room.take_as(holder.to_owned(), Some(role)).ok()).take(1000).collect()
    }

    #[test]
    fn one_holder_has_its_share_and_admins_have_places_when_others_took_all() {
        let room = Lasting::new("requests that wait", Limits { all: 10, of_one: 4 }, 4);
        let mut greedy = all(&room, "token greedy", Role::Operator);
        assert_eq!(greedy.len(), 4);
        let _others = [all(&room, "token a", Role::Viewer), all(&room, "token b", Role::Viewer)];
        let refused = room.take_as("token c".to_owned(), Some(Role::Operator)).unwrap_err();
        assert!(
            format!("{refused:?}").contains("there are 10 requests that wait at this region"),
            "{refused:?}"
        );
        assert_eq!(all(&room, "user root", Role::Admin).len(), 2, "one admin leaves some to the next");
        greedy.pop();
        assert_eq!(all(&room, "token c", Role::Viewer).len(), 1, "what has ended gives its place back");
    }
}
