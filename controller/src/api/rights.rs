//! What somebody may do and see: pure rules, over roles and pools.
//!
//! A caller has grants: a role everywhere, or in some pools. Machines and deployments are of a pool; everything else is of
//! none, is seen by everybody who has a grant at all, and is changed by those whose grant is for everywhere. Who may do
//! what ([`ACCESS`]) is changed by admins, and seen by those with a grant for everywhere.

use std::collections::BTreeSet;

/// Kinds whose objects are of a pool.
pub const POOLED: [&str; 2] = ["Machine", "Deployment"];

/// Kinds that say who may do what.
pub const ACCESS: [&str; 3] = ["User", "Role", "ApiToken"];

/// What somebody may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look, and try out.
    Viewer,
    /// Change.
    Operator,
    /// Change who may change.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// As the database and the kind Role have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }
}

/// A role, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What may be done.
    pub role: Role,
    /// In these pools; `None`: everywhere.
    pub pools: Option<BTreeSet<String>>,
}

/// Everything that somebody was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights(Vec<Grant>);

impl Rights {
    /// These grants.
    #[must_use]
    pub fn new(grants: Vec<Grant>) -> Self {
        Self(grants)
    }

    /// One role everywhere.
    #[must_use]
    pub fn everywhere(role: Role) -> Self {
        Self(vec![Grant { role, pools: None }])
    }

    /// The role for what is of no pool.
    #[must_use]
    pub fn unlimited(&self) -> Option<Role> {
        self.0.iter().filter(|g| g.pools.is_none()).map(|g| g.role).max()
    }

    /// The highest role that there is in any pool.
    #[must_use]
    pub fn highest(&self) -> Option<Role> {
        self.0.iter().map(|g| g.role).max()
    }

    /// The role over machines and deployments of a pool; of one that is not known, only that for everywhere.
    #[must_use]
    pub fn over(&self, pool: Option<&str>) -> Option<Role> {
        let holds = |grant: &&Grant| match (&grant.pools, pool) {
            (None, _) => true,
            (Some(pools), Some(pool)) => pools.contains(pool),
            (Some(_), None) => false,
        };
        self.0.iter().filter(holds).map(|g| g.role).max()
    }

    /// Whether objects of this kind and pool ([`basalt_db::Store::pools`] says which) are seen at all.
    #[must_use]
    pub fn may_see(&self, kind: &str, pool: Option<&str>) -> bool {
        let role = match kind {
            kind if POOLED.contains(&kind) => self.over(pool),
            kind if ACCESS.contains(&kind) => self.unlimited(),
            _ => self.highest(),
        };
        role.is_some()
    }

    /// The pools outside of which no machine and no deployment is seen; `None`: all are.
    #[must_use]
    pub fn visible_pools(&self) -> Option<BTreeSet<String>> {
        if self.unlimited().is_some() {
            return None;
        }
        Some(self.0.iter().filter_map(|g| g.pools.as_ref()).flatten().cloned().collect())
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
    fn without_a_grant_nothing_is_seen() {
        let nobody = Rights::default();
        assert!(!nobody.may_see("Zone", None) && !nobody.may_see("Machine", Some("default")));
        assert_eq!(nobody.visible_pools(), Some(BTreeSet::new()));
        let empty = Rights::new(vec![grant(Role::Admin, &[])]);
        assert!(!empty.may_see("Machine", Some("default")));
    }
}
