//! `basalt login` and `basalt logout`. A password is never an argument: it is typed, or comes from a file or a pipe.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use basalt_api::wire::LoginRequest;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::output::show;
use crate::region::{Connection, Failed};

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
    let password = password(&args)?;
    let request = LoginRequest { user: args.user.clone(), password };
    let answer = connection.client_with(None)?.login(&request).await?;
    session.keep(&answer.token)?;
    show(&format!("logged in as {}; the session ends when it is not used for 30 minutes\n", args.user));
    Ok(())
}

/// Ends the session here and at the region.
pub(crate) async fn logout(connection: &Connection) -> Result<(), Failed> {
    let session = connection.session()?;
    let Some(token) = session.token()? else {
        return Err(Failed::Words("there is no session with this region".into()));
    };
    session.forget()?;
    Ok(connection.client_with(Some(token))?.logout().await?)
}

fn password(args: &Args) -> Result<String, Failed> {
    let failed = |path: PathBuf| move |source| Failed::File { path, source };
    match &args.password_file {
        Some(path) if path.as_os_str() != "-" => {
            let text = std::fs::read_to_string(path).map_err(failed(path.clone()))?;
            Ok(first_line(&text))
        }
        None if std::io::stdin().is_terminal() => ask(&args.user).map_err(failed("/dev/stdin".into())),
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

/// Asks on the terminal, which does not show what is typed.
fn ask(user: &str) -> std::io::Result<String> {
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    write!(std::io::stderr(), "password of {user}: ")?;
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
    writeln!(std::io::stderr())?;
    read.map(|_| first_line(&line))
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
