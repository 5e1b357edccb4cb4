//! `basalt login` and `basalt logout`. A password is never an argument: it is typed, or comes from a file or a pipe.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use basalt_api::ProblemCode;
use basalt_api::wire::LoginRequest;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::output::show;
use crate::region::{Connection, Failed};

/// As a shell says of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Arguments of `basalt login`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user
    #[arg(env = "BASALT_USER")]
    user: String,
    /// File with the password; - or a pipe: from standard input. Otherwise it is asked for
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Logs in, and keeps the session for the other commands.
pub(crate) async fn login(args: Args, connection: &Connection) -> Result<(), Failed> {
    let session = connection.session()?;
    let client = connection.client_with(None)?;
    let password = password(&args).await?;
    if password.is_empty() {
        return Err(Failed::Words("the password is empty; nothing was sent".into()));
    }
    let request = LoginRequest { user: args.user.clone(), password };
    let answer = client.login(&request).await.map_err(|error| match error.problem() {
        // Not what other commands are told, which is to log in.
        Some(problem) if problem.code == ProblemCode::Unauthenticated => {
            Failed::Words(problem.detail.clone())
        }
        _ => Failed::Client(error),
    })?;
    session.keep(&answer.token)?;
    show(&format!("logged in as {}; the session ends when it is not used for 30 minutes\n", args.user));
    if let Some(other) = connection.token_given_by() {
        eprintln!("basalt: {other} is given, and other commands use that, not this session, until it is not");
    }
    Ok(())
}

/// Ends the session here and at the region.
pub(crate) async fn logout(connection: &Connection) -> Result<(), Failed> {
    let session = connection.session()?;
    let Some(token) = session.token()? else {
        return Err(Failed::Words(format!("there is no session with {}", connection.regions())));
    };
    let client = connection.client_with(Some(token))?;
    session.forget()?;
    match client.logout().await {
        Ok(()) => show("logged out\n"),
        Err(error) if error.code() == Some(ProblemCode::Unauthenticated) => {
            show("the session had ended already\n")
        }
        Err(error) => {
            let words = "the session is forgotten here; the region did not hear of it, and ends it when it is not used for 30 minutes";
            return Err(Failed::Words(format!("{words}: {error}")));
        }
    }
    Ok(())
}

async fn password(args: &Args) -> Result<String, Failed> {
    let failed = |path: PathBuf| move |source| Failed::File { path, source };
    match &args.password_file {
        Some(path) if path.as_os_str() != "-" => {
            let text = std::fs::read_to_string(path).map_err(failed(path.clone()))?;
            Ok(first_line(&text))
        }
        None if std::io::stdin().is_terminal() => ask(&args.user).await.map_err(failed("/dev/stdin".into())),
        _ => {
            let mut text = String::new();
            std::io::stdin().lock().read_to_string(&mut text).map_err(failed("/dev/stdin".into()))?;
            Ok(first_line(&text))
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Asks on the terminal, which does not show what is typed, and does again whatever happens.
async fn ask(user: &str) -> std::io::Result<String> {
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    write!(std::io::stderr(), "password of {user}: ")?;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let typed = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let line = tokio::select! {
        line = typed => Some(line),
        _ = tokio::signal::ctrl_c() => None,
    };
    tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
    writeln!(std::io::stderr())?;
    match line {
        Some(line) => Ok(first_line(&line.map_err(std::io::Error::other)??)),
        // Somebody still waits for the terminal, and would for ever.
        None => std::process::exit(INTERRUPTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_as_it_stands() {
        assert_eq!(first_line(" with spaces \nnext"), " with spaces ");
        assert_eq!(first_line("dos\r\n"), "dos");
        assert_eq!(first_line(""), "");
    }
}
