//! Calls without effects: data sources, functions, and ephemeral resources.

use std::collections::BTreeMap;
use std::fmt::Debug;

use super::mini::{answered, broken_at, failed, filled};
use super::{Broken, MiniCore, rules};
use crate::codec;
use crate::path::Path;
use crate::pb;
use crate::schema::{Attribute, Schema};
use crate::types::Type;
use crate::value::Val;

impl MiniCore {
    /// Reads a data source, and checks the rules in the table of [this module](super).
    ///
    /// # Errors
    /// A rule that was broken, or a read that failed.
    pub async fn data(&mut self, type_name: &str, config: &Val) -> Result<Val, Broken> {
        let (schema, of) = known(&self.data, type_name, "data source")?;
        let config = filled(&schema.attributes, config);
        for config in [&config, &rules::cloud(&schema.attributes, &config, true)] {
            let request = pb::validate_data_resource_config::Request {
                type_name: type_name.to_owned(),
                config: Some(codec::encode(config)),
            };
            let checked = self.client.validate_data_resource_config(request).await;
            answered("ValidateDataResourceConfig", checked, |checked| &checked.diagnostics)?;
        }
        let during = format!("ReadDataSource of {type_name}");
        let mut read = Vec::new();
        for _ in 0..2 {
            let request = pb::read_data_source::Request {
                type_name: type_name.to_owned(),
                config: Some(codec::encode(&config)),
                ..Default::default()
            };
            let answer = self.client.read_data_source(request).await;
            let answer = answered(&during, answer, |answer| &answer.diagnostics)?;
            read.push(decoded(&during, answer.state.as_ref(), &of)?);
        }
        whole(&during, &schema.attributes, &config, read)
    }

    /// Calls a function, and checks the rules in the table of [this module](super). A refusal does not break a rule: it is returned as
    /// text.
    ///
    /// # Errors
    /// A rule that was broken.
    pub async fn call(&mut self, name: &str, arguments: &[Val]) -> Result<Result<Val, String>, Broken> {
        let during = format!("CallFunction of {name}");
        let Some(of) = self.functions.get(name).cloned() else {
            return Err(missing(name, "function"));
        };
        let mut results = Vec::new();
        for _ in 0..2 {
            let arguments = arguments.iter().map(codec::encode).collect();
            let request = pb::call_function::Request { name: name.to_owned(), arguments };
            let answer = self.client.call_function(request).await;
            let answer = answer.map_err(|status| failed(&during, &status))?.into_inner();
            if let Some(refused) = answer.error {
                let is_bare = !refused.text.is_empty() && !refused.text.ends_with('.');
                let how = (!is_bare).then(|| format!("it is refused with {:?}", refused.text));
                broken_at(&during, how.into_iter().collect())?;
                results.push(Err(refused.text));
                continue;
            }
            let result = decoded(&during, answer.result.as_ref(), &of)?;
            broken_at(&during, rules::unknown(&result, &Path::root()))?;
            results.push(Ok(result));
        }
        same_twice(&during, results)
    }

    /// Opens an ephemeral resource, renews it if it asks for that, and closes it. Checks the rules in the table of [this
    /// module](super). Returns its value.
    ///
    /// # Errors
    /// A rule that was broken, or an opening that failed.
    pub async fn open(&mut self, type_name: &str, config: &Val) -> Result<Val, Broken> {
        let (schema, of) = known(&self.ephemerals, type_name, "ephemeral resource")?;
        let config = filled(&schema.attributes, config);
        for config in [&config, &rules::cloud(&schema.attributes, &config, true)] {
            let request = pb::validate_ephemeral_resource_config::Request {
                type_name: type_name.to_owned(),
                config: Some(codec::encode(config)),
            };
            let checked = self.client.validate_ephemeral_resource_config(request).await;
            answered("ValidateEphemeralResourceConfig", checked, |checked| &checked.diagnostics)?;
        }
        let during = format!("OpenEphemeralResource of {type_name}");
        let request = pb::open_ephemeral_resource::Request {
            type_name: type_name.to_owned(),
            config: Some(codec::encode(&config)),
            ..Default::default()
        };
        let opened = self.client.open_ephemeral_resource(request).await;
        let opened = answered(&during, opened, |opened| &opened.diagnostics)?;
        let result = decoded(&during, opened.result.as_ref(), &of)
            .and_then(|result| whole(&during, &schema.attributes, &config, vec![result]));
        let mut private = opened.private;
        if opened.renew_at.is_some() {
            let request = pb::renew_ephemeral_resource::Request {
                type_name: type_name.to_owned(),
                private: private.clone(),
            };
            let renewed = self.client.renew_ephemeral_resource(request).await;
            let renewed = answered("RenewEphemeralResource", renewed, |renewed| &renewed.diagnostics)?;
            private = renewed.private.or(private);
        }
        // Close it even after other errors.
        let request = pb::close_ephemeral_resource::Request { type_name: type_name.to_owned(), private };
        let closed = self.client.close_ephemeral_resource(request).await;
        answered("CloseEphemeralResource", closed, |closed| &closed.diagnostics)?;
        result
    }
}

fn missing(name: &str, what: &str) -> Broken {
    Broken { during: name.to_owned(), how: vec![format!("there is no such {what}")] }
}

fn known(all: &BTreeMap<String, (Schema, Type)>, name: &str, what: &str) -> Result<(Schema, Type), Broken> {
    all.get(name).cloned().ok_or_else(|| missing(name, what))
}

fn decoded(during: &str, sent: Option<&pb::DynamicValue>, of: &Type) -> Result<Val, Broken> {
    codec::decode(sent, of)
        .map_err(|error| Broken { during: during.to_owned(), how: vec![error.to_string()] })
}

/// Checks that each result is present, wholly known, equal to the configured values, and the same each time.
fn whole(during: &str, attributes: &[Attribute], config: &Val, read: Vec<Val>) -> Result<Val, Broken> {
    for value in &read {
        let nothing = value.is_null().then(|| "nothing came".to_owned());
        broken_at(during, nothing.into_iter().collect())?;
        broken_at(during, rules::unknown(value, &Path::root()))?;
        let expected = attributes.iter().map(|it| {
            let given = config.get(&it.name);
            (it.name.clone(), if given.is_null() && it.is_computed() { Val::Unknown } else { given.clone() })
        });
        broken_at(during, rules::honoured(attributes, &Val::Map(expected.collect()), value, &Path::root()))?;
    }
    same_twice(during, read)
}

fn same_twice<T: PartialEq + Debug>(during: &str, results: Vec<T>) -> Result<T, Broken> {
    let wrong = |how: String| Broken { during: during.to_owned(), how: vec![how] };
    let mut results = results.into_iter();
    let first = results.next().ok_or_else(|| wrong("nothing came".to_owned()))?;
    match results.find(|again| *again != first) {
        None => Ok(first),
        Some(again) => Err(wrong(format!("{first:?}, and then {again:?}"))),
    }
}
