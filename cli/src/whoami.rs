//! `basalt whoami`: the identity and the rights of the caller.

use basalt_api::wire::{GrantedRole, KnownBy, WhoAmI};

use crate::output::{show, show_json};
use crate::region::{Connection, Failed};

/// Arguments of `basalt whoami`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// text for people, json for programs
    #[arg(long, short, default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// Runs the command.
pub(crate) async fn run(args: Args, connection: &Connection) -> Result<(), Failed> {
    let who = connection.client()?.whoami().await?;
    match args.output.as_str() {
        "json" => show_json(&who),
        _ => show(&text(&who)),
    }
    Ok(())
}

fn text(who: &WhoAmI) -> String {
    let mut text = who.actor.clone();
    if let (KnownBy::Token, Some(user)) = (who.by, &who.user) {
        text.push_str(&format!(", for user {user}"));
    }
    text.push_str(match who.by {
        KnownBy::Session => ", by a session",
        KnownBy::Token => "",
        KnownBy::Socket => ", by the region's socket",
    });
    if let Some(end) = who.expires_at {
        let unless = if who.by == KnownBy::Session { " unless it is used" } else { "" };
        text.push_str(&format!(", which ends at {end}{unless}"));
    }
    text.push('\n');
    for GrantedRole { role, pools } in &who.roles {
        text.push_str(&match pools {
            None => format!("{role}\n"),
            Some(pools) if pools.is_empty() => format!("{role} in no pool\n"),
            Some(pools) => format!("{role} in {}\n", pools.join(", ")),
        });
    }
    if who.roles.is_empty() {
        text.push_str("no role: nothing may be seen\n");
    }
    if !who.scopes.is_empty() {
        text.push_str(&format!("limited to {}\n", who.scopes.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_says_who_by_what_until_when_and_with_which_roles() {
        let told = [
            (
                json!({"actor": "user ann", "by": "session", "name": "ann", "user": "ann", "scopes": [],
                    "roles": [{"role": "viewer"}, {"role": "operator", "pools": ["blue", "red"]}],
                    "expires_at": "2026-01-31T12:00:00Z"}),
                "user ann, by a session, which ends at 2026-01-31T12:00:00Z unless it is used\nviewer\noperator in blue, red\n",
            ),
            (
                json!({"actor": "token ci", "by": "token", "name": "ci", "user": "ann", "scopes": ["zones"],
                    "roles": [], "expires_at": "2026-01-31T12:00:00Z"}),
                "token ci, for user ann, which ends at 2026-01-31T12:00:00Z\nno role: nothing may be seen\nlimited to zones\n",
            ),
            (
                json!({"actor": "peer uid 0", "by": "socket", "scopes": [], "roles": [{"role": "admin"}]}),
                "peer uid 0, by the region's socket\nadmin\n",
            ),
        ];
        for (answer, said) in told {
            assert_eq!(text(&serde_json::from_value(answer).unwrap()), said);
        }
    }
}
