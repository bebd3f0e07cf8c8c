//! What becomes of an entry that is offered, by what is in its place.

use std::path::{Path, PathBuf};

use files_proto::content::Address;
use files_proto::plan;

use crate::options::OnConflict;
use crate::progress::Would;

/// What has been tried for an entry with another file in its place.
#[derive(Clone, Default)]
pub(super) struct Tried {
    /// The number of the last file that it was compared with: 1 is the one in its place, 2 that of the next name.
    pub(super) number: u32,
    /// Of all its chunks, once they were asked for.
    pub(super) addresses: Vec<Address>,
    /// What somebody decided.
    pub(super) answer: Option<plan::OnConflict>,
}

impl Tried {
    /// Whether somebody, or the user's rule, says that an entry with something in its place is left out.
    pub(super) fn is_left_out(&self, rule: &OnConflict) -> bool {
        match self.answer {
            Some(answer) => answer == plan::OnConflict::Skip,
            None => matches!(rule, OnConflict::Skip),
        }
    }
}

/// Something in the place of an entry, or not.
pub(super) enum Place {
    Free {
        path: PathBuf,
        /// A file that may have some of its chunks.
        like: Option<PathBuf>,
    },
    /// To be replaced.
    Taken(PathBuf),
    /// What is offered is there.
    Same(PathBuf),
    /// To be compared with what is there.
    Unsure {
        candidate: PathBuf,
        tried: Tried,
    },
    Skip,
    /// The user would be asked, which a dry run does not.
    Asked,
    Blocked(&'static str),
}

/// What a dry run tells of an entry that would be sent, at least in part.
pub(super) struct Look {
    /// Where it would be stored.
    pub(super) path: PathBuf,
    /// A file that may have some of its chunks.
    pub(super) candidate: Option<PathBuf>,
    pub(super) would: Would,
}

impl Place {
    /// Of an entry that is offered at `path`, which `is_renamed` where its own name is another one; `None` where it
    /// would not be sent, or that is not known yet.
    pub(super) fn look(&self, path: &Path, is_renamed: bool) -> Option<Look> {
        let (stored, candidate, would) = match self {
            Self::Free { path: free, like } if free == path && !is_renamed => {
                (free.as_path(), like.as_ref(), Would::Store)
            }
            Self::Free { path: free, like } => (free.as_path(), like.as_ref(), Would::Rename),
            Self::Taken(taken) => (taken.as_path(), Some(taken), Would::Overwrite),
            // Replaced or stored beside it, only what differs would come.
            Self::Asked => {
                return Some(Look {
                    path: path.to_owned(),
                    candidate: Some(path.to_owned()),
                    would: Would::Ask,
                });
            }
            Self::Same(_) | Self::Unsure { .. } | Self::Skip | Self::Blocked(_) => return None,
        };
        Some(Look {
            path: stored.to_owned(),
            candidate: candidate.cloned(),
            would,
        })
    }
}
