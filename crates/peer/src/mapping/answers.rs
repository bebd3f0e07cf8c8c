//! What routers answer: why one protocol brings nothing, and what the answers of several mean together.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::Poll;

use crab_nat::{MappingFailure, natpmp, pcp};
use tokio::runtime;

use super::problem::MappingProblem;

/// Why one protocol brought nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The router does not speak it.
    NoAnswer,
    /// What it answers, or what is wrong here.
    Answer(String),
}

impl Refusal {
    pub(super) fn of(protocol: &str, answer: impl fmt::Display) -> Self {
        Self::Answer(format!("{protocol}: {answer}"))
    }

    /// Whether nobody listens there: nothing comes back, or that the port is closed.
    pub(super) fn of_socket(protocol: &str, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::TimedOut => Self::NoAnswer,
            _ => Self::of(protocol, error),
        }
    }
}

impl From<MappingFailure> for Refusal {
    fn from(failure: MappingFailure) -> Self {
        match failure {
            MappingFailure::Pcp(failure) => failure.into(),
            MappingFailure::NatPmp(failure) => failure.into(),
        }
    }
}

impl From<pcp::Failure> for Refusal {
    fn from(failure: pcp::Failure) -> Self {
        match failure {
            pcp::Failure::Timeout => Self::NoAnswer,
            pcp::Failure::Socket(error) => Self::of_socket("PCP", &error),
            other => Self::of("PCP", other),
        }
    }
}

impl From<natpmp::Failure> for Refusal {
    fn from(failure: natpmp::Failure) -> Self {
        match failure {
            natpmp::Failure::Timeout => Self::NoAnswer,
            natpmp::Failure::Socket(error) => Self::of_socket("NAT-PMP", &error),
            other => Self::of("NAT-PMP", other),
        }
    }
}

/// What the protocols' refusals mean together.
pub(super) fn problem(router: IpAddr, refusals: [Refusal; 2]) -> MappingProblem {
    let answers = refusals.into_iter().filter_map(|refusal| match refusal {
        Refusal::NoAnswer => None,
        Refusal::Answer(answer) => Some(answer),
    });
    let answers: Vec<String> = answers.collect();
    match answers.is_empty() {
        true => MappingProblem::NoAnswer { router },
        false => MappingProblem::Refused {
            router,
            answers: answers.join("; "),
        },
    }
}

/// Waits for a future of one of the libraries, which needs tokio's sockets and timers.
pub(super) fn wait<T>(work: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Refusal::of("no runtime", error))?;
    runtime.block_on(work)
}

/// What the first of them brings that succeeds; otherwise a refusal, with an answer if there was one.
pub(super) async fn first_of<T>(
    mut open: Vec<Pin<Box<impl Future<Output = Result<T, Refusal>>>>>,
) -> Result<T, Refusal> {
    let mut refusal = Refusal::NoAnswer;
    poll_fn(|context| {
        let mut index = 0;
        while index < open.len() {
            match open[index].as_mut().poll(context) {
                Poll::Ready(Ok(found)) => return Poll::Ready(Ok(found)),
                Poll::Ready(Err(other)) => {
                    drop(open.remove(index));
                    if other != Refusal::NoAnswer {
                        refusal = other;
                    }
                }
                Poll::Pending => index += 1,
            }
        }
        match open.is_empty() {
            true => Poll::Ready(Err(refusal.clone())),
            false => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::net::Ipv4Addr;

    use super::*;

    const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn a_router_that_refuses_is_told_from_one_that_knows_no_protocol() {
        let silent = [
            Refusal::from(pcp::Failure::Timeout),
            Refusal::of_socket("UPnP", &io::ErrorKind::ConnectionRefused.into()),
        ];
        let problem_of = |refusals| problem(ROUTER, refusals);
        let no_answer = problem_of(silent);
        assert_eq!(no_answer.name(), "no_answer");
        let refused = problem_of([Refusal::from(natpmp::Failure::NotAuthorized), Refusal::NoAnswer]);
        assert_eq!(refused.name(), "refused");
        let told = refused.to_string();
        assert!(
            told.contains("10.0.0.1 refuses: NAT-PMP: ") && told.contains("Not authorized"),
            "{told}"
        );
    }

    /// Each has its own way to be ready.
    type Answers = Vec<Pin<Box<dyn Future<Output = Result<u8, Refusal>>>>>;

    fn outcome(answers: Answers) -> Result<u8, Refusal> {
        let boxed = answers.into_iter().map(Box::pin).collect();
        wait(first_of(boxed))
    }

    #[test]
    fn who_answers_nonsense_or_nothing_does_not_hold_up_who_answers() {
        let nonsense = || Box::pin(ready(Err(Refusal::of("UPnP", "nonsense"))));
        let found = outcome(vec![nonsense(), Box::pin(pending()), Box::pin(ready(Ok(7)))]);
        assert_eq!(found, Ok(7));
        let refused = outcome(vec![nonsense(), Box::pin(ready(Err(Refusal::NoAnswer)))]);
        assert_eq!(refused, Err(Refusal::of("UPnP", "nonsense")));
    }
}
