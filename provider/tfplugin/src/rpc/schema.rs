//! The calls about the provider's parts: schemas, metadata and functions.

use std::collections::BTreeMap;

use super::{Rpc, Types};
use crate::codec;
use crate::function::{self, Refusal};
use crate::pb;

fn capabilities() -> pb::ServerCapabilities {
    pb::ServerCapabilities {
        plan_destroy: true,
        get_provider_schema_optional: true,
        move_resource_state: true,
        generate_resource_config: true,
    }
}

impl Types {
    pub(super) fn functions_to_pb(&self) -> BTreeMap<String, pb::Function> {
        let functions = self.functions.iter();
        functions.map(|(name, (_, signature))| (name.clone(), signature.to_pb())).collect()
    }

    pub(super) fn metadata(&self) -> pb::get_metadata::Response {
        use pb::get_metadata as sent;
        fn each<T, M>(types: &BTreeMap<String, T>, metadata: impl Fn(String) -> M) -> Vec<M> {
            types.keys().cloned().map(metadata).collect()
        }
        sent::Response {
            server_capabilities: Some(capabilities()),
            diagnostics: Vec::new(),
            data_sources: each(&self.data_sources, |type_name| sent::DataSourceMetadata { type_name }),
            resources: each(&self.resources, |type_name| sent::ResourceMetadata { type_name }),
            functions: each(&self.functions, |name| sent::FunctionMetadata { name }),
            ephemeral_resources: each(&self.ephemerals, |type_name| sent::EphemeralMetadata { type_name }),
            list_resources: each(&self.lists, |type_name| sent::ListResourceMetadata { type_name }),
            actions: each(&self.actions, |type_name| sent::ActionMetadata { type_name }),
            // The provider has no state stores, so Terraform makes no calls about them.
            state_stores: Vec::new(),
        }
    }

    pub(super) fn schemas(&self) -> pb::get_provider_schema::Response {
        fn each<T: ?Sized, S>(
            types: &BTreeMap<String, (Box<T>, crate::types::Type)>,
            schema: impl Fn(&T) -> S,
        ) -> BTreeMap<String, S> {
            types.iter().map(|(name, (one, _))| (name.clone(), schema(one))).collect()
        }
        pb::get_provider_schema::Response {
            provider: Some(self.provider.0.to_pb()),
            resource_schemas: each(&self.resources, |it| it.schema().to_pb()),
            data_source_schemas: each(&self.data_sources, |it| it.schema().to_pb()),
            ephemeral_resource_schemas: each(&self.ephemerals, |it| it.schema().to_pb()),
            list_resource_schemas: each(&self.lists, |it| it.schema().to_pb()),
            action_schemas: each(&self.actions, |it| pb::ActionSchema { schema: Some(it.schema().to_pb()) }),
            state_store_schemas: BTreeMap::new(),
            functions: self.functions_to_pb(),
            server_capabilities: Some(capabilities()),
            diagnostics: Vec::new(),
            provider_meta: None,
        }
    }
}

impl Rpc {
    pub(super) fn call_one(&self, request: pb::call_function::Request) -> pb::call_function::Response {
        let answer = match self.types().functions.get(&request.name) {
            Some((function, signature)) => function::call(function.as_ref(), signature, &request.arguments),
            None => {
                let name = &request.name;
                Err(Refusal::whole(format!(
                    "This version of the provider has no function {name:?}. Another version may have it."
                )))
            }
        };
        let (result, error) = match answer {
            Ok(value) => (Some(codec::encode(&value)), None),
            Err(refusal) => (None, Some(refusal.to_pb())),
        };
        pb::call_function::Response { result, error }
    }
}
