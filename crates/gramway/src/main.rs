//! The `gramway` program: flags, settings, state directory, admin socket and messages for people around crate
//! `tunnel`. This file runs the command and turns its result into an exit code.

mod addresses;
mod admin;
mod authorities;
mod bench_command;
mod certificate;
mod check;
mod cli;
mod close_code;
mod command_files;
mod config;
mod connect;
mod cover;
mod ctl;
mod drain;
mod exit;
mod failover;
mod forward;
mod guardian;
mod helper;
mod hook_url;
mod http;
mod identity;
mod kill_switch;
mod limits;
mod link;
mod log;
mod metrics;
mod output;
mod peer_command;
mod print_link;
mod privileges;
mod profiles;
mod proxies;
mod qlog;
mod qr;
mod recent;
mod relay_command;
mod relay_key;
mod release;
mod reload;
mod remote_forward;
mod run;
mod sandbox;
mod server_state;
mod service;
mod service_manager;
mod show_config;
mod startup;
mod state;
mod status;
mod status_table;
mod tcp_shape;
#[cfg(test)]
mod test_support;
mod tls_names;
mod top;
mod tproxy;
mod transfer;
mod tun;
mod units;
mod up;
mod upgrade;
mod users;

use std::panic;
use std::process::ExitCode;

use exit::{Code, Problem};

fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        let what = info.to_string().replace('\n', " ");
        tell_end(
            "bug",
            &format!("internal error, please report it and what you did: {what}"),
        );
    }));
    let code = match panic::catch_unwind(dispatch) {
        Ok(Ok(())) => 0,
        Ok(Err(problem)) => {
            // A link or token in the wrong place is quoted by whoever did not expect it.
            tell_end("failed", &link::without_secrets(&problem.to_string()));
            problem.end()
        }
        Err(_) => Code::Bug as u8,
    };
    ExitCode::from(code)
}

/// Says why the program ends, in the log where programs read it.
fn tell_end(event: &'static str, why: &str) {
    if log::is_for_people() {
        output::note(&format!("gramway: {why}"));
    } else {
        log::error(event, why);
    }
}

fn dispatch() -> Result<(), Problem> {
    privileges::give_up_those_of_the_file()?;
    let Some(command) = cli::parse()? else {
        return Ok(());
    };
    match command {
        cli::Command::Up(arguments) => up::run(&arguments),
        cli::Command::Connect(arguments) => connect::run(arguments),
        cli::Command::Demo => bench_command::demo(),
        cli::Command::Link(arguments) => print_link::run(&arguments),
        cli::Command::User(arguments) => users::run(&arguments),
        cli::Command::Check(arguments) => check::run(&arguments),
        cli::Command::Config(arguments) => show_config::run(&arguments),
        cli::Command::Completions { shell } => command_files::completions(shell),
        cli::Command::Man { directory } => command_files::man_pages(&directory),
        cli::Command::Status(arguments) => status::run(&arguments),
        cli::Command::Profile(arguments) => profiles::run(&arguments),
        cli::Command::Ctl(arguments) => ctl::run(&arguments),
        cli::Command::Top(arguments) => top::run(&arguments),
        cli::Command::Release(arguments) => release::run(&arguments),
        cli::Command::Peer(arguments) => peer_command::run(&arguments),
        cli::Command::Relay(arguments) => relay_command::run(&arguments),
        cli::Command::Send(arguments) => transfer::send(&arguments),
        cli::Command::Receive(arguments) => transfer::receive(&arguments),
        cli::Command::Share(arguments) => transfer::share(&arguments),
        cli::Command::Service(arguments) => service::run(&arguments),
        cli::Command::Bench(command) => bench_command::run(command),
        cli::Command::Helper(arguments) => helper::run(&arguments),
        cli::Command::Launcher(arguments) => upgrade::run_launcher(&arguments),
        cli::Command::Guardian { file } => guardian::run(&file),
    }
}
