//! DNS messages (RFC 1035 section 4.1) as far as they have to be understood to be passed on: the number in front, the
//! flags, and the one question.

/// Bytes of the header.
const HEADER_BYTES: usize = 12;

/// Of the third byte: the message is an answer; of the next one: who answers asks others, too.
const IS_ANSWER: u8 = 0x80;
const RECURSION_AVAILABLE: u8 = 0x80;

/// Bytes behind the name of a question: type and class.
const TYPE_AND_CLASS_BYTES: usize = 4;

/// The code of an answer that says that there is none.
const SERVFAIL: u8 = 2;

/// A question, as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    message: Vec<u8>,
    /// Where its one question ends.
    end: usize,
}

impl Question {
    /// `None` where it is anything but a standard query with one question.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        const OPCODE: u8 = 0x78;
        let header = message.get(..HEADER_BYTES)?;
        if header[2] & (IS_ANSWER | OPCODE) != 0 || header[4..6] != [0, 1] {
            return None;
        }
        Some(Self {
            message: message.to_vec(),
            end: question_end(message)?,
        })
    }

    /// The message under another number.
    pub(super) fn numbered(&self, number: [u8; 2]) -> Vec<u8> {
        let mut message = self.message.clone();
        message[..2].copy_from_slice(&number);
        message
    }

    /// The answer under the client's number, if this is one to the question sent under `number`: names are compared
    /// without regard to case (RFC 4343).
    pub(super) fn answered(&self, number: [u8; 2], answer: &[u8]) -> Option<Vec<u8>> {
        let header = answer.get(..HEADER_BYTES)?;
        let is_answer = header[..2] == number && header[2] & IS_ANSWER != 0 && header[4..6] == [0, 1];
        let asked = &self.message[HEADER_BYTES..self.end];
        let repeated = answer.get(HEADER_BYTES..self.end)?;
        if !is_answer || !repeated.eq_ignore_ascii_case(asked) {
            return None;
        }
        Some([&self.message[..2], &answer[2..]].concat())
    }

    /// That no name server could be asked: SERVFAIL.
    pub(super) fn failure(&self) -> Vec<u8> {
        self.bare(0, SERVFAIL)
    }

    /// That the answer is too long for a datagram, so that the client asks by TCP.
    pub(super) fn truncated(&self) -> Vec<u8> {
        const TRUNCATED: u8 = 0x02;
        const NO_ERROR: u8 = 0;
        self.bare(TRUNCATED, NO_ERROR)
    }

    /// An answer that repeats the question and has nothing else.
    fn bare(&self, flags: u8, code: u8) -> Vec<u8> {
        const RECURSION_DESIRED: u8 = 0x01;
        let mut answer = self.message[..self.end].to_vec();
        answer[2] = IS_ANSWER | (answer[2] & RECURSION_DESIRED) | flags;
        answer[3] = RECURSION_AVAILABLE | code;
        answer[6..HEADER_BYTES].fill(0);
        answer
    }
}

/// Whether a name server says that it could not or would not look: another one may.
pub(super) fn is_refusal(answer: &[u8]) -> bool {
    const REFUSED: u8 = 5;
    matches!(answer.get(3).map(|flags| flags & 0x0f), Some(SERVFAIL | REFUSED))
}

/// Where the question behind the header ends. Its name has no pointers: nothing stands before it.
fn question_end(message: &[u8]) -> Option<usize> {
    const LABEL_BYTES_MAX: u8 = 63;
    const NAME_BYTES_MAX: usize = 255;
    let mut end = HEADER_BYTES;
    loop {
        let length = *message.get(end)?;
        end += 1 + usize::from(length);
        if length > LABEL_BYTES_MAX || end > HEADER_BYTES + NAME_BYTES_MAX {
            return None;
        }
        if length == 0 {
            break;
        }
    }
    end += TYPE_AND_CLASS_BYTES;
    (end <= message.len()).then_some(end)
}

/// Two bytes of a number, one of the question's length, a question, an answer: an answer that is taken is the one that
/// came under the client's number, and what we say ourselves is an answer to the question.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    let Some((&[high, low, length], rest)) = input.split_first_chunk() else {
        return;
    };
    let (asked, answer) = rest.split_at(rest.len().min(usize::from(length)));
    let Some(question) = Question::parse(asked) else {
        return;
    };
    let number = [high, low];
    assert_eq!(question.numbered(number)[2..], asked[2..]);
    if let Some(taken) = question.answered(number, answer) {
        assert_eq!((&taken[..2], &taken[2..]), (&asked[..2], &answer[2..]));
        let _ = is_refusal(&taken);
    }
    for own in [question.failure(), question.truncated()] {
        let mut sent = own.clone();
        sent[..2].copy_from_slice(&number);
        assert_eq!(question.answered(number, &sent), Some(own));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A question for the address of `a.bc`, with an OPT record behind it.
    fn asked() -> Vec<u8> {
        let header = [7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
        [&header[..], b"\x01a\x02bc\0\0\x01\0\x01", &opt].concat()
    }

    fn answer_to(question: &[u8]) -> Vec<u8> {
        let mut answer = question.to_vec();
        answer[2] |= 0x80;
        answer
    }

    #[test]
    fn a_question_goes_on_as_it_is_under_another_number_and_its_answer_comes_back_under_its_own() {
        let question = Question::parse(&asked()).unwrap();
        let sent = question.numbered([1, 2]);
        assert_eq!((&sent[..2], &sent[2..]), (&[1, 2][..], &asked()[2..]));
        let mut answer = answer_to(&sent);
        assert_eq!(question.answered([1, 2], &answer).unwrap()[..2], [7, 9]);
        answer[13] = b'A';
        assert!(question.answered([1, 2], &answer).is_some());
        assert!(question.answered([1, 3], &answer).is_none(), "another number");
        answer[13] = b'x';
        assert!(question.answered([1, 2], &answer).is_none(), "another name");
        assert!(question.answered([1, 2], &sent).is_none(), "a question");
    }

    #[test]
    fn only_a_standard_query_with_one_whole_question_is_passed_on() {
        let whole = asked();
        for length in 0..whole.len() - 11 {
            assert!(Question::parse(&whole[..length]).is_none(), "{length}");
        }
        for (place, byte) in [(2, 0x80), (2, 0x28), (5, 0), (5, 2), (12, 0xc0)] {
            let mut other = whole.clone();
            other[place] = byte;
            assert!(Question::parse(&other).is_none(), "{place}");
        }
        let long = [&whole[..12], &b"\x3f".repeat(64 * 5), &[0, 0, 1, 0, 1]].concat();
        assert!(Question::parse(&long).is_none());
    }

    #[test]
    fn failures_repeat_the_question_alone() {
        let question = Question::parse(&asked()).unwrap();
        let failure = question.failure();
        assert_eq!(failure.len(), asked().len() - 11);
        assert_eq!(failure[..12], [7, 9, 0x81, 0x82, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(is_refusal(&failure) && !is_refusal(&question.truncated()));
        assert_eq!(question.truncated()[2..4], [0x83, 0x80]);
    }

    proptest! {
        #[test]
        fn no_message_panics(message in proptest::collection::vec(any::<u8>(), 0..64), answer in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(question) = Question::parse(&message) {
                let _ = question.answered([0, 0], &answer);
                prop_assert_eq!(question.failure().len(), question.truncated().len());
            }
        }
    }
}
