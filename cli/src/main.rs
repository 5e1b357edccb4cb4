//! basalt: the operator's command. Each command has its own module.

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
mod host_name;
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
mod script;
mod session;
#[cfg(test)]
mod stand_in;
mod subject;
mod token;
mod wait;
mod watch;
mod webhook;
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
    /// Explain an object and its waits, a machine that does not boot, the clock of a rack, or the answer for a host name
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
    /// Show deliveries of webhooks; send dead letters again, or delete them
    Webhook(webhook::Args),
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
    /// Declare a script of a file, with what its comment says
    Script(script::Args),
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
    /// Restart a machine's BMC, if it refuses sessions or does not obey; the machine itself goes on
    ResetBmc(operate::Args),
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
    ended(block_on(perform(command, &connection)), &connection)
}

/// Runs a command.
async fn perform(command: Command, connection: &Connection) -> Result<(), Failed> {
    match command {
        Command::Image(args) => image::run(args, connection).await,
        Command::Get(args) => get::run(args, connection).await,
        Command::Edit(args) => edit::run(args, connection).await,
        Command::Completion(args) => completion::run(&args),
        Command::Apply(args) => apply::run(args, connection).await,
        Command::Plan(args) => apply::plan(args, connection).await,
        Command::Delete(args) => delete::run(args, connection).await,
        Command::Rename(args) => rename::run(args, connection).await,
        Command::Wait(args) => wait::run(args, connection).await,
        Command::Patch(args) => patch::run(args, connection).await,
        Command::Label(args) => label::run(args, connection).await,
        Command::Lint(args) => lint::run(args),
        Command::Watch(args) => watch::run(args, connection).await,
        Command::Explain(args) => explain::run(args, connection).await,
        Command::Logs(args) => logs::run(args, connection).await,
        Command::Login(args) => login::login(args, connection).await,
        Command::Logout => login::logout(connection).await,
        Command::Passwd(args) => login::passwd(args, connection).await,
        Command::Whoami(args) => whoami::run(args, connection).await,
        Command::Token(args) => token::run(args, connection).await,
        Command::Webhook(args) => webhook::run(args, connection).await,
        Command::Events(args) => events::run(args, connection).await,
        Command::Audit(args) => audit::run(args, connection).await,
        Command::Accept(args) => accept::run(args, connection).await,
        Command::Power(args) => operate::power(args, connection).await,
        Command::Recommission(args) => operate::run(Verb::Recommission, args, connection).await,
        Command::RunScript(args) => operate::script(args, connection).await,
        Command::Script(args) => script::run(args),
        Command::Test(args) => operate::test(args, connection).await,
        Command::Results(args) => results::run(args, connection).await,
        Command::OverrideTests(args) => operate::override_tests(args, connection).await,
        Command::Rescue(args) => operate::rescue(args, connection).await,
        Command::Abort(args) => operate::run(Verb::Abort, args, connection).await,
        Command::ResetBmc(args) => operate::run(Verb::ResetBmc, args, connection).await,
        Command::Operations(args) => operate::list(args, connection).await,
        Command::Rack(args) => rack::run(args, connection).await,
    }
}

/// Prints the reason why a command failed.
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
