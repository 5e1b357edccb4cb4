//! basalt: the operator's command. One module a command.

mod accept;
mod apply;
mod audit;
mod boots;
mod clock;
mod completion;
mod confirm;
mod delete;
#[cfg(test)]
mod documented;
mod dry_run;
mod edit;
mod events;
mod explain;
mod get;
mod image;
mod label;
mod lint;
mod login;
mod logs;
mod operate;
mod output;
mod patch;
mod rack;
mod region;
mod rename;
mod results;
mod session;
#[cfg(test)]
mod stand_in;
mod subject;
mod token;
mod wait;
mod watch;
mod whoami;

use std::process::ExitCode;

use basalt_api::ProblemCode;
use basalt_api::wire::Verb;
use clap::{Parser, Subcommand};

use region::{Connection, Failed, block_on};

/// Bare metal, declared.
#[derive(Debug, Parser)]
#[command(name = "basalt", version)]
struct Cli {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show objects, and who has which address
    Get(get::Args),
    /// Change an object's spec in an editor
    Edit(edit::Args),
    /// Declare objects: show what that would do, ask, and do exactly that
    Apply(apply::Args),
    /// Show what applying files would do, and do nothing
    Plan(apply::Declarations),
    /// Delete an object: show what that would mean, ask, and let go of it
    Delete(delete::Args),
    /// Give an object another name
    Rename(rename::Args),
    /// Wait until an object is as declared, or gone
    Wait(wait::Args),
    /// Change some fields of an object
    Patch(patch::Args),
    /// Show, give and take labels and tags, beside those that others give
    Label(label::Args),
    /// Name keys in Terraform files that Terraform would drop: nested ones that are misspelt
    Lint(lint::Args),
    /// Show what changes, as it changes
    Watch(watch::Args),
    /// Say what an object is doing, what it waits for, and what happened; or why a machine does not boot
    Explain(explain::Args),
    /// Show a machine's log: syslog, and its agent and scripts
    Logs(logs::Args),
    /// Log in, with a password or an ID token; other commands use the session until it ends
    Login(login::Args),
    /// End the session
    Logout,
    /// Change the password of the session's user
    Passwd(login::PasswdArgs),
    /// Say who the region takes this command for, and what that one may do
    Whoami(whoami::Args),
    /// Make and end the texts of API tokens
    Token(token::Args),
    /// Say who changed what
    Audit(audit::Args),
    /// Show events of the region: writes, steps, phases, objects that stand still
    Events(events::Args),
    /// Make Machines of Discoveries: of undeclared machines that booted from the network
    Accept(accept::Args),
    /// Switch a machine's power, or say if it is on
    Power(operate::PowerArgs),
    /// Read a machine's hardware again, and try again what failed on it
    Recommission(operate::Args),
    /// Run a script on a machine that nobody uses, in the ephemeral environment
    RunScript(operate::ScriptArgs),
    /// Test a machine's hardware, in the ephemeral environment
    Test(operate::TestArgs),
    /// Show what tests of a machine's hardware found
    Results(results::Args),
    /// Let a machine be used although tests of its hardware failed
    OverrideTests(operate::OverrideArgs),
    /// Boot a machine into an environment in memory, to mend it over SSH
    Rescue(operate::RescueArgs),
    /// End the commissioning, install, script or rescue of a machine that is under way, and cut its power
    Abort(operate::Args),
    /// Show what was asked of a machine, and what became of it
    Operations(operate::ListArgs),
    /// Enrol racks
    Rack(rack::Args),
    /// Images: what machines boot and what is installed on them
    Image(image::Args),
    /// Print a script with which a shell completes commands, flags and kinds
    Completion(completion::Args),
}

fn main() -> ExitCode {
    let Cli { connection, command } = Cli::parse();
    let ended = |result| ended(result, &connection);
    match command {
        Command::Image(args) => image::run(args, &connection),
        Command::Get(args) => ended(block_on(get::run(args, &connection))),
        Command::Edit(args) => ended(block_on(edit::run(args, &connection))),
        Command::Completion(args) => ended(completion::run(&args)),
        Command::Apply(args) => ended(block_on(apply::run(args, &connection))),
        Command::Plan(args) => ended(block_on(apply::plan(args, &connection))),
        Command::Delete(args) => ended(block_on(delete::run(args, &connection))),
        Command::Rename(args) => ended(block_on(rename::run(args, &connection))),
        Command::Wait(args) => ended(block_on(wait::run(args, &connection))),
        Command::Patch(args) => ended(block_on(patch::run(args, &connection))),
        Command::Label(args) => ended(block_on(label::run(args, &connection))),
        Command::Lint(args) => ended(lint::run(args)),
        Command::Watch(args) => ended(block_on(watch::run(args, &connection))),
        Command::Explain(args) => ended(block_on(explain::run(args, &connection))),
        Command::Logs(args) => ended(block_on(logs::run(args, &connection))),
        Command::Login(args) => ended(block_on(login::login(args, &connection))),
        Command::Logout => ended(block_on(login::logout(&connection))),
        Command::Passwd(args) => ended(block_on(login::passwd(args, &connection))),
        Command::Whoami(args) => ended(block_on(whoami::run(args, &connection))),
        Command::Token(args) => ended(block_on(token::run(args, &connection))),
        Command::Events(args) => ended(block_on(events::run(args, &connection))),
        Command::Audit(args) => ended(block_on(audit::run(args, &connection))),
        Command::Accept(args) => ended(block_on(accept::run(args, &connection))),
        Command::Power(args) => ended(block_on(operate::power(args, &connection))),
        Command::Recommission(args) => ended(block_on(operate::run(Verb::Recommission, args, &connection))),
        Command::RunScript(args) => ended(block_on(operate::script(args, &connection))),
        Command::Test(args) => ended(block_on(operate::test(args, &connection))),
        Command::Results(args) => ended(block_on(results::run(args, &connection))),
        Command::OverrideTests(args) => ended(block_on(operate::override_tests(args, &connection))),
        Command::Rescue(args) => ended(block_on(operate::rescue(args, &connection))),
        Command::Abort(args) => ended(block_on(operate::run(Verb::Abort, args, &connection))),
        Command::Operations(args) => ended(block_on(operate::list(args, &connection))),
        Command::Rack(args) => ended(block_on(rack::run(args, &connection))),
    }
}

/// Says why a command failed.
fn ended(result: Result<(), Failed>, connection: &Connection) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed::Client(error)) if error.code() == Some(ProblemCode::Unauthenticated) => {
            let why = error.problem().map(|problem| problem.detail.as_str()).unwrap_or_default();
            output::say(&format!(
                "basalt: the region does not know who you are: {why}; {}",
                connection.who_to_be()
            ));
            ExitCode::FAILURE
        }
        Err(error) => {
            output::say(&format!("basalt: {error}"));
            ExitCode::FAILURE
        }
    }
}
