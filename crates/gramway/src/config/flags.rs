//! The flags of the table's settings: their clap arguments, and the values given on a command line. Values stay texts
//! here, so that a flag, a variable and the file are checked by the same code.

use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::setting::{Flag, Kind, Reader, Setting};
use super::table;

/// A command that has flags of settings.
pub(crate) trait CommandWithSettings {
    /// Whether it has the flags of such settings.
    fn reads(reader: Reader) -> bool;
}

/// `gramway up`.
#[derive(Clone, Debug)]
pub(crate) enum Up {}

/// `gramway connect`.
#[derive(Clone, Debug)]
pub(crate) enum Connect {}

/// `gramway link`.
#[derive(Debug)]
pub(crate) enum Link {}

impl CommandWithSettings for Up {
    fn reads(reader: Reader) -> bool {
        matches!(reader, Reader::Server | Reader::ServerAndLink | Reader::Both)
    }
}

impl CommandWithSettings for Connect {
    fn reads(reader: Reader) -> bool {
        matches!(reader, Reader::Client | Reader::Both)
    }
}

impl CommandWithSettings for Link {
    fn reads(reader: Reader) -> bool {
        reader == Reader::ServerAndLink
    }
}

/// The flags of one command line, in the table's order.
#[derive(Clone, Debug)]
pub(crate) struct Flags<C> {
    given: Vec<Given>,
    command: PhantomData<C>,
}

/// One flag with its values; a switch has the value that it stands for.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) setting: &'static Setting,
    pub(super) texts: Vec<OsString>,
}

impl<C> Flags<C> {
    /// A command line without flags.
    pub(crate) fn none() -> Self {
        Self {
            given: Vec::new(),
            command: PhantomData,
        }
    }

    pub(super) fn given(&self) -> &[Given] {
        &self.given
    }

    /// The last value of this setting's flag.
    pub(crate) fn value(&self, key: &str) -> Option<&OsStr> {
        let given = self.given.iter().find(|given| given.setting.key == key)?;
        given.texts.last().map(OsString::as_os_str)
    }

    /// Puts another value in place of those of a flag that was given.
    pub(crate) fn replace(&mut self, key: &str, text: &str) {
        for given in self.given.iter_mut().filter(|given| given.setting.key == key) {
            given.texts = vec![text.into()];
        }
    }
}

impl<C: CommandWithSettings> Args for Flags<C> {
    fn augment_args(command: Command) -> Command {
        settings_of::<C>().fold(command, |command, setting| match argument(setting) {
            Some(argument) => command.arg(argument),
            None => command,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: CommandWithSettings> FromArgMatches for Flags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::none();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.given.clear();
        for setting in settings_of::<C>() {
            let texts: Vec<OsString> = match setting.flag {
                Flag::None => continue,
                Flag::On if matches.get_flag(setting.key) => vec!["true".into()],
                Flag::Off(_) if matches.get_flag(setting.key) => vec!["false".into()],
                Flag::On | Flag::Off(_) => continue,
                Flag::Value(_) | Flag::Letter(..) | Flag::OptionalValue { .. } => matches
                    .try_get_many::<OsString>(setting.key)
                    .map_err(|error| clap::Error::raw(ErrorKind::InvalidValue, error))?
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect(),
            };
            if !texts.is_empty() {
                self.given.push(Given { setting, texts });
            }
        }
        Ok(())
    }
}

fn settings_of<C: CommandWithSettings>() -> impl Iterator<Item = &'static Setting> {
    table::all().filter(|setting| C::reads(setting.reader))
}

/// The clap argument of a setting's flag; `None` if it has no flag.
fn argument(setting: &'static Setting) -> Option<Arg> {
    let argument = Arg::new(setting.key)
        .long(setting.long_flag()?)
        .help(help(setting))
        .conflicts_with_all(setting.excludes);
    let with_value = |argument: Arg, value: &'static str| {
        let action = match setting.kind {
            Kind::List => ArgAction::Append,
            _ => ArgAction::Set,
        };
        argument
            .value_name(value)
            .value_parser(ValueParser::os_string())
            .action(action)
    };
    Some(match setting.flag {
        Flag::None => return None,
        Flag::On | Flag::Off(_) => argument.action(ArgAction::SetTrue),
        Flag::Value(value) => with_value(argument, value),
        Flag::Letter(letter, value) => with_value(argument, value).short(letter),
        Flag::OptionalValue { value, alone } => with_value(argument, value)
            .num_args(0..=1)
            .default_missing_value(alone),
    })
}

fn help(setting: &Setting) -> String {
    let text = setting.documentation;
    match (setting.flag, setting.kind) {
        (Flag::Off(help), _) => help.to_owned(),
        (_, Kind::Boolean) => text.to_owned(),
        (_, Kind::List) => format!("{text}; may be repeated [default: {}]", setting.shown_default()),
        _ => format!("{text} [default: {}]", setting.shown_default()),
    }
}
