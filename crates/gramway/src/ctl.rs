//! `gramway ctl`: has the running processes of a state directory do something, by their admin sockets.

use serde_json::{Value, json};

use crate::cli::{CtlAction, CtlArguments};
use crate::exit::{Code, Problem};
use crate::state::StateDirectory;
use crate::status::{Answer, Question, ask_all};
use crate::{output, upgrade};

/// Runs the command.
pub(crate) fn run(arguments: &CtlArguments) -> Result<(), Problem> {
    // A service has a user of its own, and root speaks to it.
    let directory =
        StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?.into_owners()?;
    let mut problems = Vec::new();
    let failed = match &arguments.action {
        CtlAction::Reload => "nothing is changed",
        CtlAction::Drain { .. } => "it does not drain",
        CtlAction::Upgrade { .. } => "it is not upgraded",
    };
    let question = match &arguments.action {
        CtlAction::Reload => Question::of("POST /v1/reload"),
        CtlAction::Drain { timeout } => {
            Question::of_server("POST /v1/drain", &json!({ "timeout_seconds": timeout }))
        }
        CtlAction::Upgrade {
            timeout,
            start_timeout,
        } => {
            let asked = json!({ "timeout_seconds": timeout, "start_timeout_seconds": start_timeout });
            Question::of_server("POST /v1/upgrade", &asked).within(upgrade::patience(&asked)?)
        }
    };
    let answers = ask_all(&directory, &question, |path| {
        output::note(&format!(
            "warning: the process behind {} does not answer",
            path.display()
        ));
    })?;
    if answers.is_empty() {
        return Err(Problem::unavailable(format!(
            "no {} that answers is running with the state directory {}; name another with --state DIR",
            question.asked(),
            directory.shown().display()
        )));
    }
    for Answer { name, code, body } in &answers {
        let name = name.trim_end_matches(".sock");
        if *code == 200 {
            for line in body["told"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                output::data(&format!("{name}: {}", output::shown(line)))?;
            }
        } else {
            let code = match code {
                422 => Code::Configuration,
                400 => Code::Usage,
                _ => Code::Unavailable,
            };
            let told = output::shown(body["error"].as_str().unwrap_or("it does not say why"));
            problems.push(Problem::new(code, format!("{name}: {failed}: {told}")));
        }
    }
    Problem::all(problems)
}
