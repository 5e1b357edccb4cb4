//! `basalt accept`: makes a Machine from a Discovery, as the Discovery's status proposes.

use basalt_api::client::Precondition;
use basalt_api::kinds::{Discovery, Machine};
use basalt_api::wire::PutRequest;
use basalt_api::{KindOf, Object};
use serde_json::{Map, Value};

use crate::dry_run;
use crate::output::show;
use crate::region::{Connection, Failed};
use crate::subject::discovery;

/// Arguments of `basalt accept`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names of Discoveries (`basalt get discoveries`)
    #[arg(required = true, value_parser = discovery)]
    discoveries: Vec<String>,
    /// The Machine's name; otherwise the one that Settings say (enlistment.name)
    #[arg(long)]
    name: Option<String>,
    /// The Machine's zone; otherwise as a rule of Settings says
    #[arg(long)]
    zone: Option<String>,
    /// The Machine's pool; otherwise as a rule of Settings says
    #[arg(long)]
    pool: Option<String>,
    /// Make nothing, and say what would happen
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    if let (Some(name), [_, _, ..]) = (&args.name, args.discoveries.as_slice()) {
        return Err(Failed::Words(format!(
            "--name {name} is one name, and several Discoveries are to be accepted"
        )));
    }
    let client = connection.client()?;
    for discovery in &args.discoveries {
        let found = client.get(Discovery::KIND, discovery).await?;
        let (name, spec) = machine(&found, &args)?;
        let request = PutRequest { spec, ..PutRequest::default() };
        if args.dry_run {
            let dry = client.put_dry_run(Machine::KIND, &name, &request, Precondition::Absent).await?;
            show(&dry_run::shown(&dry));
            continue;
        }
        client.put(Machine::KIND, &name, &request, Precondition::Absent).await?;
        show(&format!("Machine {name} was made of {discovery}\n"));
    }
    Ok(())
}

/// The name and the spec of the Machine.
fn machine(found: &Object, args: &Args) -> Result<(String, Value), Failed> {
    let discovery = &found.metadata.name;
    let Some(proposal) = found.status.get("proposal").and_then(Value::as_object) else {
        return Err(Failed::Words(format!(
            "no Machine can be made of {discovery}: it is none that booted from the network; see `basalt get discovery {discovery}`"
        )));
    };
    let mut spec: Map<String, Value> = proposal.clone();
    let proposed = spec.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    for (field, given) in [("zone", &args.zone), ("pool", &args.pool)] {
        if let Some(given) = given {
            spec.insert(field.to_owned(), given.as_str().into());
        }
    }
    let name = args.name.clone().or(proposed);
    let name = name.ok_or_else(|| Failed::Words(format!("{discovery} proposes no name: say --name NAME")))?;
    Ok((name, spec.into()))
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::extract::Request;
    use axum::http::{Method, StatusCode};
    use axum::response::{IntoResponse, Response};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    use crate::stand_in::{self, zone};

    /// A region with one Discovery with this status. It stores the paths of writes.
    fn region(status: Value) -> (Arc<Mutex<Vec<String>>>, impl Fn(&Request) -> Response + Clone) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let seen = written.clone();
        let answer = move |request: &Request| {
            let mut object = zone("Ready");
            if request.method() == Method::GET {
                object["kind"] = json!("Discovery");
                object["status"] = status.clone();
                return Json(object).into_response();
            }
            seen.lock().unwrap().push(request.uri().path().to_owned());
            (StatusCode::CREATED, Json(object)).into_response()
        };
        (written, answer)
    }

    #[tokio::test]
    async fn a_discovery_becomes_the_machine_that_it_proposes_under_the_name_that_is_given() {
        let proposal = json!({"name": "dell-1", "architecture": "amd64", "boot_macs": ["52:54:00:00:00:0a"]});
        let (written, answer) = region(json!({"proposal": proposal}));
        stand_in::run(&["accept", "mac-1"], answer.clone()).await.unwrap();
        stand_in::run(&["accept", "mac-1", "--name", "web1"], answer.clone()).await.unwrap();
        assert_eq!(*written.lock().unwrap(), ["/api/v1/machines/dell-1", "/api/v1/machines/web1"]);
        let both = stand_in::run(&["accept", "mac-1", "mac-2", "--name", "web1"], answer).await.unwrap_err();
        assert!(both.to_string().contains("several Discoveries"), "{both}");
    }

    #[tokio::test]
    async fn a_dhcp_server_becomes_no_machine() {
        let (written, answer) = region(json!({"sort": "rogue_dhcp"}));
        let refused = stand_in::run(&["accept", "dhcp-10-77-0-9-lab"], answer).await.unwrap_err().to_string();
        assert!(refused.contains("no Machine can be made of"), "{refused}");
        assert!(written.lock().unwrap().is_empty());
    }
}
