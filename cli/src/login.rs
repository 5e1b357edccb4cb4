//! `basalt login`, `basalt logout` and `basalt passwd`. Passwords and ID tokens are never arguments: a person types a password, or a file
//! or a pipe contains it.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use basalt_api::ProblemCode;
use basalt_api::wire::{LoginRequest, OpenIdLogin, PasswordLogin, PasswordRequest};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::output::show;
use crate::region::{Connection, Failed};

/// Exit status of a program that Ctrl-C ended, as shells report it.
const INTERRUPTED: i32 = 130;

/// Name of standard input in errors.
const STDIN: &str = "/dev/stdin";

/// Arguments of `basalt login`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user
    #[arg(env = "BASALT_USER", required_unless_present = "id_token_file")]
    user: Option<String>,
    /// File with the password; - or a pipe: from standard input. Otherwise it is asked for
    #[arg(long, value_name = "FILE", conflicts_with = "id_token_file")]
    password_file: Option<PathBuf>,
    /// File with an ID token, to log in by OpenID Connect; - for standard input
    #[arg(long, value_name = "FILE")]
    id_token_file: Option<PathBuf>,
}

/// The body of the login request. Its secrets never come from arguments.
async fn credentials(args: &Args) -> Result<LoginRequest, Failed> {
    if let Some(file) = &args.id_token_file {
        let id_token = given(Some(file))?.unwrap_or_default().trim().to_owned();
        return match id_token.is_empty() {
            true => Err(Failed::Words("there is no ID token in the file; nothing was sent".into())),
            false => Ok(LoginRequest::OpenId(OpenIdLogin { id_token, nonce: None })),
        };
    }
    let user = args.user.clone().unwrap_or_default();
    let password = match given(args.password_file.as_deref())? {
        Some(text) => line(&text, 0),
        None => ask(&format!("password of {user}")).await?,
    };
    match password.is_empty() {
        true => Err(Failed::Words("the password is empty; nothing was sent".into())),
        false => Ok(LoginRequest::Password(PasswordLogin { user, password })),
    }
}

/// Arguments of `basalt passwd`.
#[derive(Debug, clap::Args)]
pub(crate) struct PasswdArgs {
    /// File with the present password on its first line and the next one on its second; - or a pipe: from standard input.
    /// Otherwise they are asked for
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Logs in, and stores the session for other commands.
pub(crate) async fn login(args: Args, connection: &Connection) -> Result<(), Failed> {
    let session = connection.session()?;
    let client = connection.client_with(None)?;
    let request = credentials(&args).await?;
    let answer = client.login(&request).await.map_err(|error| match error.problem() {
        // Other commands advise to log in, which makes no sense here.
        Some(problem) if problem.code == ProblemCode::Unauthenticated => {
            Failed::Words(problem.detail.clone())
        }
        _ => Failed::Client(error),
    })?;
    session.keep(&answer.token)?;
    let me = connection.client_with(Some(answer.token.clone()))?.whoami().await?;
    let name = me.name.unwrap_or(me.actor);
    show(&format!("logged in as {name}; the session ends when it is not used for 30 minutes\n"));
    if let Some(other) = connection.token_given_by() {
        eprintln!("basalt: {other} is given, and other commands use that, not this session, until it is not");
    }
    Ok(())
}

/// Ends the session at the region, and removes its token here.
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

/// Changes the password of the session's user, and stores the new session.
pub(crate) async fn passwd(args: PasswdArgs, connection: &Connection) -> Result<(), Failed> {
    let session = connection.session()?;
    let Some(token) = session.token()? else {
        let words =
            format!("there is no session with {}: log in with `basalt login USER`", connection.regions());
        return Err(Failed::Words(words));
    };
    let client = connection.client_with(Some(token))?;
    let request = match given(args.password_file.as_deref())? {
        Some(text) => PasswordRequest { present: line(&text, 0), password: line(&text, 1) },
        None => {
            let present = ask("present password").await?;
            let password = ask("next password").await?;
            if ask("next password, again").await? != password {
                return Err(Failed::Words("these were two passwords; nothing was sent".into()));
            }
            PasswordRequest { present, password }
        }
    };
    let answer = client.change_password(&request).await?;
    session.keep(&answer.token)?;
    show("the password is changed; all other sessions have ended\n");
    Ok(())
}

/// Secrets from a file or a pipe. `None`: a person types them at the terminal.
fn given(file: Option<&Path>) -> Result<Option<String>, Failed> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failed::File { path, source }
    };
    match file {
        Some(path) if path.as_os_str() != "-" => {
            std::fs::read_to_string(path).map(Some).map_err(failed(path))
        }
        None if std::io::stdin().is_terminal() => Ok(None),
        _ => {
            let mut text = String::new();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            read.map(|_| Some(text)).map_err(failed(Path::new(STDIN)))
        }
    }
}

/// The line at this position; empty if there is none.
fn line(text: &str, place: usize) -> String {
    text.lines().nth(place).unwrap_or_default().to_owned()
}

/// Asks on the terminal.
async fn ask(what: &str) -> Result<String, Failed> {
    let typed = typed(what).await;
    typed.map_err(|source| Failed::File { path: STDIN.into(), source })
}

/// Reads a line from the terminal with echo off. Echo is always switched on again.
async fn typed(what: &str) -> std::io::Result<String> {
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    write!(std::io::stderr(), "{what}: ")?;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let typed = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let typed = tokio::select! {
        line = typed => Some(line),
        _ = tokio::signal::ctrl_c() => None,
    };
    tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
    writeln!(std::io::stderr())?;
    match typed {
        Some(text) => Ok(line(&text.map_err(std::io::Error::other)??, 0)),
        // The other thread still waits for the terminal and never ends, so exit.
        None => std::process::exit(INTERRUPTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_a_line_as_it_stands() {
        assert_eq!(
            (line(" with spaces \nnext", 0), line(" with spaces \nnext", 1)),
            (" with spaces ".into(), "next".into())
        );
        assert_eq!((line("dos\r\n", 0), line("dos\r\n", 1)), ("dos".into(), String::new()));
        assert_eq!(line("", 0), "");
    }
}
