//! Renaming. References are uids, so the specs that refer to the object only show another name.

use crate::object::{self, Key, Object, Referrer, Row, select_objects};
use crate::splice::Text;
use crate::store::Tx;
use crate::write::{Judge, NoJudge, TRIES};
use crate::{Store, StoreError, audit, change, reach};
use basalt_api::values::Uid;

/// The result of a rename; of a dry run, the result that it would have.
#[derive(Clone, Debug)]
pub struct Renamed {
    /// The object under its new name.
    pub object: Object,
    /// Its name before.
    pub from: String,
    /// The objects that are renamed with it.
    pub namesakes: Vec<Namesake>,
    /// The objects whose specs show the new names.
    pub referrers: Vec<Referrer>,
}

/// An object whose name follows that of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namesake {
    /// The object's kind.
    pub kind: String,
    /// The object's former name.
    pub from: String,
    /// The object's new name.
    pub to: String,
}

impl Store {
    /// Gives an object another name. Specs that refer to the object show the new name. No generation changes, because no declaration
    /// changes. The VLANs of a renamed fabric are renamed too.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Deleting`; fails too if the database cannot be written.
    pub async fn rename(&self, kind: &str, key: Key<'_>, to: &str) -> Result<Object, StoreError> {
        Ok(self.rename_judged(kind, key, to, (false, &NoJudge)).await?.object)
    }

    /// Like [`Store::rename`], with the caller's rules. A dry run does the same and rolls it back.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `Deleting`, `Refused`; fails too if the database cannot be written.
    pub async fn rename_judged(
        &self,
        kind: &str,
        key: Key<'_>,
        to: &str,
        (dry_run, judge): (bool, &dyn Judge),
    ) -> Result<Renamed, StoreError> {
        let mut tries = 1;
        loop {
            match Box::pin(self.rename_once(kind, key, to, (dry_run, judge))).await {
                Err(error) if error.is_race() && tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }

    async fn rename_once(
        &self,
        kind: &str,
        key: Key<'_>,
        to: &str,
        (dry_run, judge): (bool, &dyn Judge),
    ) -> Result<Renamed, StoreError> {
        let mut tx = self.begin().await?;
        let Some(row) = object::lock(&mut tx, kind, key).await? else {
            return Err(object::not_found(kind, key));
        };
        self.within_reach(&mut tx, &row, judge).await?;
        if row.deletion_us.is_some() {
            return Err(StoreError::Deleting { kind: row.kind, name: row.name });
        }
        let from = row.name.clone();
        let uid = row.uid;
        let (mut namesakes, mut referrers, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let mut renames = vec![(row, to.to_owned())];
        while let Some((row, to)) = renames.pop() {
            if row.name == to {
                continue;
            }
            let errors = judge.renaming(&row.clone().object()?);
            if !errors.is_empty() {
                return Err(StoreError::Refused { errors });
            }
            let named = |name: &str| serde_json::json!({ "name": name });
            written.push(audit::Written::beside(&row, &named(&row.name), &named(&to)));
            if row.uid != uid {
                let (kind, from, to) = (row.kind.clone(), row.name.clone(), to.clone());
                namesakes.push(Namesake { kind, from, to });
            }
            renames.extend(self.rename_one(&mut tx, row, &to, (judge, &mut referrers)).await?);
        }
        let row = select_objects!("where uid = $1", uid).fetch_one(&mut *tx).await?;
        self.audit(&mut tx, &written).await?;
        self.end(tx, dry_run).await?;
        Ok(Renamed { object: row.object()?, from, namesakes, referrers })
    }

    /// Renames one object and rewrites the specs that refer to it. Returns the renames that follow from it.
    async fn rename_one(
        &self,
        tx: &mut Tx,
        mut row: Row,
        to: &str,
        (judge, referrers): (&dyn Judge, &mut Vec<Referrer>),
    ) -> Result<Vec<(Row, String)>, StoreError> {
        let taken =
            sqlx::query!("select uid, manager from object where kind = $1 and name = $2", row.kind, to);
        if let Some(other) = taken.fetch_optional(&mut **tx).await? {
            let pools = match judge.minds_pools() {
                true => reach::pools(tx, &[other.uid]).await?,
                false => reach::Pools::new(),
            };
            let pool = pools.get(&other.uid).and_then(Option::as_deref);
            let manager = other.manager.filter(|_| !judge.minds_pools() || judge.sees(&row.kind, pool));
            return Err(StoreError::Exists { kind: row.kind, name: to.to_owned(), manager, free_in: None });
        }
        let update =
            sqlx::query!("update object set name = $2, updated_at = now() where uid = $1", row.uid, to);
        update.execute(&mut **tx).await?;
        row.name = to.to_owned();
        change::record(tx, &row, change::Op::Put).await?;
        self.wake_around(tx, Uid::from(row.uid)).await?;

        let referring =
            sqlx::query!("select from_uid, pointer from object_ref where to_uid = $1 order by 1", row.uid);
        let mut follow = Vec::new();
        for reference in referring.fetch_all(&mut **tx).await? {
            let from =
                select_objects!("where uid = $1 for update", reference.from_uid).fetch_one(&mut **tx).await?;
            let corrupt = |e: crate::splice::SpliceError| StoreError::Corrupt(e.to_string());
            let name = serde_json::Value::from(to).to_string();
            let spec = Text::parse(from.spec.as_str())
                .and_then(|t| t.set(&reference.pointer, &name))
                .map_err(corrupt)?;
            let update = sqlx::query!(
                "update object set spec = $2::text::json where uid = $1",
                from.uid,
                spec.as_str()
            );
            update.execute(&mut **tx).await?;
            change::record(tx, &from, change::Op::Put).await?;
            referrers.push(Referrer {
                uid: Uid::from(from.uid),
                kind: from.kind.clone(),
                name: from.name.clone(),
                pointer: reference.pointer,
            });
            if row.kind == "Fabric"
                && from.kind == "Vlan"
                && let Some((_, vid)) = from.name.rsplit_once('.')
            {
                let to = format!("{to}.{vid}");
                follow.push((from, to));
            }
        }
        Ok(follow)
    }
}
