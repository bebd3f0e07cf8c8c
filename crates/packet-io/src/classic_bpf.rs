//! Instructions of the kernel's classic virtual machine (`linux/filter.h`): an accumulator, an index register, sixteen
//! places of memory. Loads of words are big-endian; one beyond the end of the packet ends the program with 0.

pub(crate) const fn statement(code: u32, operand: u32) -> libc::sock_filter {
    jump(code, operand, 0, 0)
}

pub(crate) const fn jump(code: u32, operand: u32, if_true: u8, if_false: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: if_true,
        jf: if_false,
        k: operand,
    }
}

pub(crate) const fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

pub(crate) const fn load_byte(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, offset)
}

pub(crate) const fn compute(operation: u32, operand: u32) -> libc::sock_filter {
    statement(libc::BPF_ALU | operation | libc::BPF_K, operand)
}

/// The accumulator, by `operation` with the index register.
pub(crate) const fn combine(operation: u32) -> libc::sock_filter {
    statement(libc::BPF_ALU | operation | libc::BPF_X, 0)
}

pub(crate) const fn store(place: u32) -> libc::sock_filter {
    statement(libc::BPF_ST, place)
}

pub(crate) const fn recall(place: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_MEM, place)
}

pub(crate) const fn recall_index(place: u32) -> libc::sock_filter {
    statement(libc::BPF_LDX | libc::BPF_MEM, place)
}

pub(crate) const fn answer(index: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, index)
}

/// A word at an offset from the index register.
pub(crate) const fn load_at(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_IND, offset)
}

/// 16 bits at an offset from the index register.
pub(crate) const fn load_half_at(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, offset)
}

/// A byte at an offset from the index register.
pub(crate) const fn load_byte_at(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, offset)
}

/// A constant to the index register.
pub(crate) const fn set_index(value: u32) -> libc::sock_filter {
    statement(libc::BPF_LDX | libc::BPF_IMM, value)
}

pub(crate) const TO_INDEX: libc::sock_filter = statement(libc::BPF_MISC | libc::BPF_TAX, 0);
pub(crate) const TO_ACCUMULATOR: libc::sock_filter = statement(libc::BPF_MISC | libc::BPF_TXA, 0);
