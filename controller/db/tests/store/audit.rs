//! The audit log at rest.

use crate::common::{put, store};
use basalt_db::{Actor, AuditQuery, Key, Precondition};
use serde_json::json;
use sqlx::Connection;
use std::sync::Arc;

fn somebody() -> Arc<Actor> {
    Arc::new(Actor { name: "token x".into(), address: "127.0.0.1".into(), request: "PUT /".into() })
}

#[tokio::test]
async fn a_store_that_acts_for_nobody_logs_nothing() {
    let store = store().await;
    put(&store, "Zone", "a", json!({})).await.unwrap();
    put(&store.acting(somebody()), "Zone", "b", json!({})).await.unwrap();
    store.request_deletion("Zone", Key::Name("a"), Precondition::None, false).await.unwrap();
    let page = store.audit_page(&AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(page.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(page.entries[0].actor, *somebody());
}

#[tokio::test]
async fn entries_leave_by_retention_alone() {
    let url = basalt_db::testing::database().await;
    let store = crate::common::open(&url, [7; 32]).await.unwrap();
    put(&store.acting(somebody()), "Zone", "a", json!({})).await.unwrap();
    let mut direct = sqlx::PgConnection::connect(&url).await.unwrap();
    for forged in ["update audit set actor = 'nobody'", "delete from audit", "truncate audit"] {
        let error = sqlx::raw_sql(forged).execute(&mut direct).await.unwrap_err().to_string();
        assert!(error.contains("the audit log is append-only"), "{forged}: {error}");
    }
    store.forget_audit(1).await.unwrap();
    let all = AuditQuery { limit: 10, ..AuditQuery::default() };
    assert_eq!(store.audit_page(&all).await.unwrap().entries.len(), 1, "it is of today");
    store.forget_audit(-1).await.unwrap();
    assert_eq!(store.audit_page(&all).await.unwrap().entries.len(), 0);
}
