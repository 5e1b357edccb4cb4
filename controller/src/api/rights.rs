//! The rights of a caller: pure rules, over roles and pools.
//!
//! A caller has grants: a role everywhere, or a role in some pools. Machines and deployments are in a pool. All other objects are in
//! none: every caller with a grant sees them, and a grant for everywhere is needed to change them.
//!
//! [`ACCESS`] kinds decide about rights, or send data out of the region. Only admins change them, and only a grant for everywhere shows
//! them. [`Settings`](SETTINGS) decide for the whole fleet, so only admins change them too.

pub use basalt_api::kinds::RoleBase as Role;
use std::collections::BTreeSet;

/// Kinds whose objects are in a pool.
pub const POOLED: [&str; 2] = ["Machine", "Deployment"];

/// Kinds that decide about rights or send data out: a webhook gets every object, and makes the region send requests.
pub const ACCESS: [&str; 4] = ["User", "Role", "ApiToken", "Webhook"];

/// The kind that decides for the whole fleet.
pub const SETTINGS: &str = "Settings";

/// The role that is needed to change objects of a kind, or to do so in a dry run.
#[must_use]
pub fn changes(kind: &str, dry_run: bool) -> Role {
    match kind {
        // A viewer may not try passwords or roles either, not even in a dry run.
        kind if ACCESS.contains(&kind) => Role::Admin,
        _ if dry_run => Role::Viewer,
        SETTINGS => Role::Admin,
        _ => Role::Operator,
    }
}

/// A role, and the pools in which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The role that is granted.
    pub role: Role,
    /// The pools in which the role holds; `None`: everywhere.
    pub pools: Option<BTreeSet<String>>,
}

/// All grants of a caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(Vec<Grant>);

impl Rights {
    /// Rights with these grants.
    #[must_use]
    pub fn new(grants: Vec<Grant>) -> Self {
        Self(grants)
    }

    /// One role everywhere.
    #[must_use]
    pub fn everywhere(role: Role) -> Self {
        Self(vec![Grant { role, pools: None }])
    }

    /// The grants of which the rights consist.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.0
    }

    /// The role over objects in no pool.
    #[must_use]
    pub fn unlimited(&self) -> Option<Role> {
        self.0.iter().filter(|g| g.pools.is_none()).map(|g| g.role).max()
    }

    /// The highest role in any pool.
    #[must_use]
    pub fn highest(&self) -> Option<Role> {
        self.0.iter().map(|g| g.role).max()
    }

    /// The role over machines and deployments of a pool. If the pool is not known, only grants for everywhere count.
    #[must_use]
    pub fn over(&self, pool: Option<&str>) -> Option<Role> {
        let holds = |grant: &&Grant| match (&grant.pools, pool) {
            (None, _) => true,
            (Some(pools), Some(pool)) => pools.contains(pool),
            (Some(_), None) => false,
        };
        self.0.iter().filter(holds).map(|g| g.role).max()
    }

    /// True if an object of this kind and pool may be changed, or changed in a dry run. `None` if the caller may not even see it.
    #[must_use]
    pub fn may_change(&self, kind: &str, pool: Option<&str>, dry_run: bool) -> Option<bool> {
        let needed = changes(kind, dry_run);
        let has = match kind {
            kind if POOLED.contains(&kind) => self.over(pool),
            // A dry run of Settings shows machines of all pools.
            _ if needed == Role::Viewer && kind != SETTINGS => self.highest(),
            _ => self.unlimited(),
        };
        self.may_see(kind, pool).then_some(has >= Some(needed))
    }

    /// True if objects of this kind and pool may be seen ([`basalt_db::Store::pool_of`] returns the pool).
    #[must_use]
    pub fn may_see(&self, kind: &str, pool: Option<&str>) -> bool {
        let role = match kind {
            kind if POOLED.contains(&kind) => self.over(pool),
            kind if ACCESS.contains(&kind) => self.unlimited(),
            _ => self.highest(),
        };
        role.is_some()
    }

    /// The pools whose machines and deployments may be seen; `None`: all.
    #[must_use]
    pub fn visible_pools(&self) -> Option<BTreeSet<String>> {
        if self.unlimited().is_some() {
            return None;
        }
        Some(self.0.iter().filter_map(|g| g.pools.as_ref()).flatten().cloned().collect())
    }
}

/// The scopes of a token, by the first word of paths: `machines`, `machines:read`, `*:read`. Empty: not limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes(Vec<String>);

impl Scopes {
    /// The scopes as words.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// The scopes of a token; an empty list does not limit it.
    #[must_use]
    pub fn new(scopes: Vec<String>) -> Self {
        Self(scopes)
    }

    /// True if the scopes allow requests to paths under `word`.
    #[must_use]
    pub fn allow(&self, word: &str, writes: bool) -> bool {
        let allows = |scope: &String| {
            let (name, only_reads) =
                scope.strip_suffix(":read").map_or((scope.as_str(), false), |n| (n, true));
            (name == "*" || name == word) && !(writes && only_reads)
        };
        self.0.is_empty() || self.0.iter().any(allows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(role: Role, pools: &[&str]) -> Grant {
        Grant { role, pools: Some(pools.iter().map(|p| (*p).to_owned()).collect()) }
    }

    #[test]
    fn a_grant_for_pools_is_good_for_what_is_in_them() {
        let rights = Rights::new(vec![grant(Role::Operator, &["blue", "red"])]);
        assert_eq!(rights.over(Some("blue")), Some(Role::Operator));
        assert_eq!((rights.over(Some("green")), rights.over(None), rights.unlimited()), (None, None, None));
        assert!(rights.may_see("Machine", Some("red")) && rights.may_see("Zone", None));
        assert!(!rights.may_see("Machine", Some("green")) && !rights.may_see("Deployment", None));
        assert!(ACCESS.iter().all(|kind| !rights.may_see(kind, None)));
        assert_eq!(rights.visible_pools().unwrap().len(), 2);
    }

    #[test]
    fn of_several_grants_the_highest_that_holds_counts() {
        let rights = Rights::new(vec![
            Grant { role: Role::Viewer, pools: None },
            grant(Role::Operator, &["blue"]),
            grant(Role::Admin, &["red"]),
        ]);
        assert_eq!(rights.over(Some("blue")), Some(Role::Operator));
        assert_eq!(rights.over(Some("red")), Some(Role::Admin));
        assert_eq!(
            (rights.over(Some("green")), rights.unlimited()),
            (Some(Role::Viewer), Some(Role::Viewer))
        );
        assert_eq!(rights.visible_pools(), None);
        assert!(rights.may_see("User", None));
    }

    #[test]
    fn what_is_changed_is_of_a_pool_that_one_has_or_one_has_everything() {
        let blue = Rights::new(vec![grant(Role::Operator, &["blue"]), grant(Role::Viewer, &["red"])]);
        let changes = |kind: &str, pool| blue.may_change(kind, pool, false);
        assert_eq!(changes("Machine", Some("blue")), Some(true));
        assert_eq!(changes("Machine", Some("red")), Some(false));
        assert_eq!(changes("Machine", Some("green")), None);
        assert_eq!((changes("Zone", None), blue.may_change("Zone", None, true)), (Some(false), Some(true)));
        assert_eq!(changes("Role", None), None);
        let operator = Rights::everywhere(Role::Operator);
        assert_eq!(
            (operator.may_change("Role", None, true), operator.may_change("Zone", None, false)),
            (Some(false), Some(true))
        );
        let of_settings = |dry_run| operator.may_change(SETTINGS, None, dry_run);
        assert_eq!((of_settings(false), of_settings(true)), (Some(false), Some(true)));
        assert_eq!(Rights::everywhere(Role::Admin).may_change(SETTINGS, None, false), Some(true));
        assert_eq!(blue.may_change(SETTINGS, None, true), Some(false));
    }

    #[test]
    fn scopes_are_words_of_paths_for_reads_or_for_both() {
        let scopes = Scopes::new(vec!["machines:read".to_owned(), "zones".to_owned()]);
        assert!(scopes.allow("machines", false) && !scopes.allow("machines", true));
        assert!(scopes.allow("zones", true) && !scopes.allow("pools", false));
        assert!(Scopes::default().allow("apply", true));
        let readers = Scopes::new(vec!["*:read".to_owned()]);
        assert!(readers.allow("pools", false) && !readers.allow("pools", true));
    }

    #[test]
    fn without_a_grant_nothing_is_seen() {
        let nobody = Rights::default();
        assert!(!nobody.may_see("Zone", None) && !nobody.may_see("Machine", Some("default")));
        assert_eq!(nobody.visible_pools(), Some(BTreeSet::new()));
        let empty = Rights::new(vec![grant(Role::Admin, &[])]);
        assert!(!empty.may_see("Machine", Some("default")));
    }
}
