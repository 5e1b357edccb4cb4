//! `basalt-region`: see `basalt-region --help`.

use basalt_api::in_one_line;
use basalt_api::values::PrintableLog;
use basalt_engine::Policy;
use basalt_region::admin_token;
use basalt_region::backup;
use basalt_region::controller::Controller;
use basalt_region::region::Region;
use basalt_region::rotate;
use basalt_region::settings::{Command, LogFormat, Settings};
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let (settings, command) = match Settings::load() {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error),
    };
    if let Err(error) = log_to_stderr(&settings) {
        return fail(error.as_ref());
    }
    if let Err(error) = basalt_proto::open_files::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    let ended = match command {
        None => runtime.block_on(run(settings)),
        Some(command) => runtime.block_on(once(&settings, command)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error.as_ref()),
    }
}

/// Runs a command beside a running region, or in place of one.
async fn once(settings: &Settings, command: Command) -> Result<(), Box<dyn Error>> {
    let said = match command {
        Command::Backup { to } => backup::backup(settings, &to).await?,
        Command::Restore { from } => backup::restore(settings, &from).await?,
        Command::AdminToken => admin_token::another(settings).await?,
        Command::Recover => backup::recover(settings).await?,
        Command::RotateSealKey { new_key_file } => rotate::rotate(settings, new_key_file.as_deref()).await?,
    };
    writeln!(std::io::stdout(), "{said}")?;
    Ok(())
}

async fn run(settings: Settings) -> Result<(), Box<dyn Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (rpc_listen, join_urls) = (settings.rpc_listen, settings.join_urls.clone());
    let policy = Policy::default().compressed(settings.deadline_divisor);
    let webhooks = basalt_region::webhooks::Options::from(&settings);
    let mut region = tokio::select! {
        region = Box::pin(Region::start(settings)) => region?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let controller = match Controller::start(&region, rpc_listen, policy, join_urls).await {
        Ok(controller) => controller,
        Err(error) => {
            region.stop().await;
            return Err(error.into());
        }
    };
    if let Err(error) = region.deliver(webhooks) {
        tracing::error!(error, "webhooks are not delivered by this process");
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("draining");
    region.begin_to_stop();
    controller.ended().await;
    region.stop().await;
    Ok(())
}

fn log_to_stderr(settings: &Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let filter = tracing_subscriber::EnvFilter::try_new(&settings.log)
        .map_err(|e| format!("the setting log is {:?}, which is no filter: {e}", settings.log))?;
    // No colours: their escape sequences must not be in a log with texts of strangers.
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(|| PrintableLog(std::io::stderr()));
    match settings.log_format() {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    }
}

/// Prints an error with all its causes in one line.
fn fail(error: &(dyn Error + 'static)) -> ExitCode {
    let text = in_one_line(error);
    // The log may not be configured yet, and a person reads this.
    #[allow(clippy::print_stderr)]
    {
        eprintln!("basalt-region: {text}");
    }
    ExitCode::FAILURE
}
