//! A subject of an issuer logs in as one user.

use super::{Subject, of_kind};
use crate::StoreError;
use crate::store::Tx;
use basalt_api::values::{Uid, Url};
use basalt_api::{FieldCode, FieldError};
use uuid::Uuid;

/// Stores the identity with which each of these users logs in. Returns errors for identities that belong to another user.
pub(super) async fn write(
    tx: &mut Tx,
    subjects: &[Subject<'_>],
) -> Result<Vec<(Uid, FieldError)>, StoreError> {
    let users: Vec<&Subject<'_>> = of_kind("User", subjects).collect();
    let uids: Vec<Uuid> = users.iter().map(|user| user.uid.get()).collect();
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    // Two users of one batch may exchange identities.
    sqlx::query!("delete from user_openid where account = any($1)", &uids).execute(&mut **tx).await?;
    let person = |user: &&Subject<'_>| {
        let (issuer, subject) = (user.text("/openid/issuer")?, user.text("/openid/subject")?);
        // Canonical, so that the spelling here and in Settings does not matter.
        let issuer = issuer.parse().map_or_else(|_| issuer.to_owned(), |url: Url| url.canonical());
        Some((issuer, subject.to_owned(), user.uid))
    };
    let mut people: Vec<(String, String, Uid)> = users.iter().filter_map(person).collect();
    // All transactions insert in the same order, because they wait for each other here.
    people.sort_unstable();
    let mut errors = Vec::new();
    for (issuer, subject, uid) in people {
        let insert = sqlx::query!(
            "insert into user_openid (account, issuer, subject) values ($1, $2, $3)
             on conflict (issuer, subject) do nothing",
            uid.get(),
            issuer,
            subject
        );
        if insert.execute(&mut **tx).await?.rows_affected() > 0 {
            continue;
        }
        let holder = sqlx::query_scalar!(
            "select o.name from user_openid u join object o on o.uid = u.account where u.issuer = $1 and u.subject = $2",
            issuer,
            subject
        );
        let holder = holder.fetch_optional(&mut **tx).await?.unwrap_or_default();
        let message = format!("{subject:?} of {issuer} logs in as User {holder:?} already");
        let hint = "remove it there first";
        errors.push((uid, FieldError::new("/openid/subject", FieldCode::Overlap, message, hint)));
    }
    Ok(errors)
}
