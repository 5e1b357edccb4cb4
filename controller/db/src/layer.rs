//! Layers: the labels and tags of one manager. They are written without a change of the spec, so that several tools can add theirs.

use crate::object::{self, Key, Object, Row, select_objects};
use crate::store::Tx;
use crate::write::Judge;
use crate::{Store, StoreError, audit, change};
use basalt_api::values::{Tag, Uid};
use basalt_api::wire::{Layer, PutLayer};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

impl Store {
    /// The layers of an object, by manager.
    ///
    /// # Errors
    /// `NotFound`; fails too if the database cannot be read.
    pub async fn layers(&self, kind: &str, key: Key<'_>) -> Result<BTreeMap<String, Layer>, StoreError> {
        let mut tx = self.begin().await?;
        let row = object::lock(&mut tx, kind, key).await?.ok_or_else(|| object::not_found(kind, key))?;
        layers(&mut tx, &row).await
    }

    /// The layers of several objects, by object and manager. Objects without layers are left out.
    ///
    /// # Errors
    /// Fails if the database cannot be read.
    pub async fn layers_of(
        &self,
        objects: impl Iterator<Item = Uid>,
    ) -> Result<BTreeMap<Uid, BTreeMap<String, Layer>>, StoreError> {
        let uids: Vec<Uuid> = objects.map(Uid::get).collect();
        let rows = sqlx::query!(
            r#"select object as "object!", manager as "manager!", label, value, tag from (
                 select o.uid as object, m.key as manager, l.key as label, l.value, null as tag
                 from object o, jsonb_each(o.labels) m, jsonb_each_text(m.value) l where o.uid = any($1)
                 union all
                 select object, manager, null, null, tag from tag_layer where object = any($1)
               ) said"#,
            &uids
        );
        let mut layers: BTreeMap<Uid, BTreeMap<String, Layer>> = BTreeMap::new();
        for row in rows.fetch_all(self.pool()).await? {
            let layer = layers.entry(Uid::from(row.object)).or_default().entry(row.manager).or_default();
            if let (Some(label), Some(value)) = (row.label, row.value) {
                layer.labels.insert(label, value);
            }
            if let Some(tag) = row.tag {
                layer.tags.insert(stored(&tag)?);
            }
        }
        Ok(layers)
    }

    /// Replaces one manager's layer; an empty layer is removed. The generation stays, because the spec does. `LayerConflict` if the
    /// present layer is neither the one that the request replaces nor equal to the new one.
    ///
    /// # Errors
    /// `NotFound`, `Deleting`, `LayerConflict`, `Refused`; fails too if the database cannot be written.
    pub async fn set_layer(
        &self,
        kind: &str,
        key: Key<'_>,
        manager: &str,
        PutLayer { labels, tags, replaces }: PutLayer,
        (dry_run, judge): (bool, &dyn Judge),
    ) -> Result<Object, StoreError> {
        let mut tx = self.begin().await?;
        let row = object::lock(&mut tx, kind, key).await?.ok_or_else(|| object::not_found(kind, key))?;
        self.within_reach(&mut tx, &row, judge).await?;
        if row.deletion_us.is_some() {
            return Err(StoreError::Deleting { kind: row.kind, name: row.name });
        }
        let (before, layer) =
            (layers(&mut tx, &row).await?.remove(manager).unwrap_or_default(), Layer { labels, tags });
        if before != layer {
            if replaces.is_some_and(|replaces| replaces != before) {
                let (kind, name, manager) = (row.kind, row.name, manager.to_owned());
                return Err(StoreError::LayerConflict { kind, name, manager });
            }
            write(&mut tx, &row, manager, &layer).await?;
            change::record(&mut tx, &row, change::Op::Put).await?;
            self.wake_around(&mut tx, Uid::from(row.uid)).await?;
            let none = Layer::default();
            let of = |layer: &Layer| serde_json::json!({ "layer": { (manager): (*layer != none).then_some(layer) } });
            self.audit(&mut tx, &[audit::Written::beside(&row, &of(&before), &of(&layer))]).await?;
        }
        let row = select_objects!("where uid = $1", row.uid).fetch_one(&mut *tx).await?;
        self.end(tx, dry_run).await?;
        row.object()
    }
}

async fn layers(tx: &mut Tx, row: &Row) -> Result<BTreeMap<String, Layer>, StoreError> {
    let mut layers: BTreeMap<String, Layer> = BTreeMap::new();
    for (manager, labels) in row.layers()? {
        layers.entry(manager).or_default().labels = labels;
    }
    let tags = sqlx::query!("select manager, tag from tag_layer where object = $1", row.uid);
    for row in tags.fetch_all(&mut **tx).await? {
        layers.entry(row.manager).or_default().tags.insert(stored(&row.tag)?);
    }
    Ok(layers)
}

fn stored(tag: &str) -> Result<Tag, StoreError> {
    tag.parse().map_err(|e| StoreError::Corrupt(format!("a stored tag: {e}")))
}

async fn write(tx: &mut Tx, row: &Row, manager: &str, layer: &Layer) -> Result<(), StoreError> {
    let mut labels = row.layers()?;
    match layer.labels.is_empty() {
        true => labels.remove(manager),
        false => labels.insert(manager.to_owned(), layer.labels.clone()),
    };
    let labels = serde_json::to_value(&labels).map_err(|e| StoreError::Corrupt(e.to_string()))?;
    let update =
        sqlx::query!("update object set labels = $2, updated_at = now() where uid = $1", row.uid, labels);
    update.execute(&mut **tx).await?;
    replace_tags(tx, row.uid, manager, &layer.tags).await
}

async fn replace_tags(tx: &mut Tx, of: Uuid, manager: &str, tags: &BTreeSet<Tag>) -> Result<(), StoreError> {
    let delete = sqlx::query!("delete from tag_layer where object = $1 and manager = $2", of, manager);
    delete.execute(&mut **tx).await?;
    let tags: Vec<String> = tags.iter().map(ToString::to_string).collect();
    let insert = sqlx::query!(
        "insert into tag_layer (object, manager, tag) select $1, $2, t from unnest($3::text[]) u(t)",
        of,
        manager,
        &tags
    );
    insert.execute(&mut **tx).await?;
    Ok(())
}
