//! The bzip2 format, decompressed block by block.
//!
//! Written by hand: the crates that decompress it in Rust end with a panic for some damaged files, or read the first of
//! several streams only. Every sum of a block and of a stream is checked. The words are those of the format's descriptions:
//! a block is run-length encoded, sorted by the Burrows-Wheeler transform, moved to the front, and encoded by Huffman tables.

use std::io::{self, Read};

/// Decompresses what another reader reads.
pub(super) struct Bunzip<R> {
    bits: BitReader<R>,
    /// Bytes of a block at most; 0 before a stream.
    limit: usize,
    /// The block in the order of its text: next place and byte, packed.
    links: Vec<u32>,
    at: usize,
    left: usize,
    run: Run,
    block_sum: u32,
    wanted_sum: u32,
    stream_sum: u32,
    is_over: bool,
}

/// The run-length code over bytes: after four equal ones comes a count of more.
#[derive(Default)]
struct Run {
    byte: u8,
    length: u8,
    repeats: u8,
}

struct BitReader<R> {
    reader: R,
    buffer: Vec<u8>,
    at: usize,
    word: u64,
    n: u32,
}

const BLOCK: u64 = 0x3141_5926_5359;
const END: u64 = 0x1772_4538_5090;
const LONGEST: usize = 20;

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl<R: Read> BitReader<R> {
    /// Whether there is a byte more.
    fn fill(&mut self) -> io::Result<bool> {
        if self.at == self.buffer.len() {
            self.buffer.resize(1 << 15, 0);
            let n = loop {
                match self.reader.read(&mut self.buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => break read?,
                }
            };
            self.buffer.truncate(n);
            self.at = 0;
        }
        Ok(self.at < self.buffer.len())
    }

    fn take(&mut self, n: u32) -> io::Result<u64> {
        while self.n < n {
            if !self.fill()? {
                return Err(damaged("it ends too early"));
            }
            self.word = self.word << 8 | u64::from(self.buffer[self.at]);
            self.at += 1;
            self.n += 8;
        }
        self.n -= n;
        Ok(self.word >> self.n & ((1 << n) - 1))
    }

    /// The next bits of the longest code, with zeros behind the end; those of the code are to be dropped.
    #[inline]
    fn peek(&mut self) -> io::Result<u32> {
        while self.n < LONGEST as u32 {
            if !self.fill()? {
                return Ok((self.word << (LONGEST as u32 - self.n)) as u32 & ((1 << LONGEST) - 1));
            }
            self.word = self.word << 8 | u64::from(self.buffer[self.at]);
            self.at += 1;
            self.n += 8;
        }
        Ok((self.word >> (self.n - LONGEST as u32)) as u32 & ((1 << LONGEST) - 1))
    }

    fn bit(&mut self) -> io::Result<bool> {
        Ok(self.take(1)? == 1)
    }
}

/// The CRC-32 of bzip2, of one byte more.
fn summed(sum: u32, byte: u8) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut k = 0;
        while k < 256 {
            let mut sum = (k as u32) << 24;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum >> 31 == 1 { sum << 1 ^ 0x04C1_1DB7 } else { sum << 1 };
                bit += 1;
            }
            table[k] = sum;
            k += 1;
        }
        table
    };
    sum << 8 ^ TABLE[(sum >> 24) as usize ^ usize::from(byte)]
}

/// A canonical Huffman code: of each length the first code, and where its symbols start.
struct Table {
    limits: [u32; LONGEST + 2],
    starts: [u32; LONGEST + 2],
    symbols: Vec<u16>,
    shortest: usize,
}

impl Table {
    fn new(lengths: &[u8]) -> Table {
        let mut symbols = Vec::with_capacity(lengths.len());
        let (mut limits, mut starts) = ([0; LONGEST + 2], [0; LONGEST + 2]);
        let mut code = 0;
        for length in 1..=LONGEST {
            starts[length] = (symbols.len() as u32).wrapping_sub(code);
            for (symbol, _) in lengths.iter().enumerate().filter(|&(_, &l)| usize::from(l) == length) {
                symbols.push(symbol as u16);
                code += 1;
            }
            limits[length] = code;
            code <<= 1;
        }
        let shortest = lengths.iter().copied().min().map_or(1, usize::from);
        Table { limits, starts, symbols, shortest }
    }

    fn symbol<R: Read>(&self, bits: &mut BitReader<R>) -> io::Result<u16> {
        let next = bits.peek()?;
        for length in self.shortest..=LONGEST {
            let code = next >> (LONGEST - length);
            if code < self.limits[length] {
                bits.take(length as u32)?;
                let place = code.wrapping_add(self.starts[length]) as usize;
                return self.symbols.get(place).copied().ok_or_else(|| damaged("a code has no symbol"));
            }
        }
        Err(damaged("a code has no symbol"))
    }
}

impl<R: Read> Bunzip<R> {
    pub(super) fn new(reader: R) -> Self {
        Bunzip {
            bits: BitReader { reader, buffer: Vec::new(), at: 0, word: 0, n: 0 },
            limit: 0,
            links: Vec::new(),
            at: 0,
            left: 0,
            run: Run::default(),
            block_sum: 0,
            wanted_sum: 0,
            stream_sum: 0,
            is_over: false,
        }
    }

    /// Decodes the next block, of this stream or of one behind it; false at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        loop {
            if self.limit == 0 {
                // Streams begin at whole bytes.
                self.bits.n -= self.bits.n % 8;
                if self.bits.n == 0 && !self.bits.fill()? {
                    return Ok(false);
                }
                let magic = self.bits.take(32)?;
                let level = magic & 0xFF;
                if magic >> 8 != 0x42_5A68 || !(0x31..=0x39).contains(&level) {
                    return Err(damaged("no bzip2 stream begins where one should"));
                }
                (self.limit, self.stream_sum) = (100_000 * (level as usize - 0x30), 0);
            }
            let (kind, sum) = (self.bits.take(48)?, self.bits.take(32)? as u32);
            match kind {
                BLOCK => {
                    self.wanted_sum = sum;
                    self.stream_sum = self.stream_sum.rotate_left(1) ^ sum;
                    self.decode()?;
                    return Ok(true);
                }
                END if sum == self.stream_sum => self.limit = 0,
                END => return Err(damaged("the sum of a stream is wrong")),
                _ => return Err(damaged("no block begins where one should")),
            }
        }
    }

    fn decode(&mut self) -> io::Result<()> {
        if self.bits.bit()? {
            return Err(damaged("it has a randomised block, as versions before 0.9.5 made them"));
        }
        let origin = self.bits.take(24)? as usize;
        let mut used = Vec::with_capacity(256);
        let groups = self.bits.take(16)?;
        for group in (0..16).filter(|group| groups >> (15 - group) & 1 == 1) {
            let bytes = self.bits.take(16)?;
            used.extend((0..16).filter(|byte| bytes >> (15 - byte) & 1 == 1).map(|byte| (16 * group + byte) as u8));
        }
        let (tables, selectors) = self.tables(used.len() + 2)?;
        self.symbols(&mut used, &tables, &selectors)?;
        if origin >= self.links.len() {
            return Err(damaged("a block starts outside of itself"));
        }
        self.invert(origin);
        Ok(())
    }

    /// Huffman tables, and which is used for each group of 50 symbols.
    fn tables(&mut self, n_symbols: usize) -> io::Result<(Vec<Table>, Vec<u8>)> {
        let n_tables = self.bits.take(3)? as usize;
        let n_selectors = self.bits.take(15)? as usize;
        if !(2..=6).contains(&n_tables) || n_selectors == 0 || n_symbols < 3 {
            return Err(damaged("a block has no tables"));
        }
        let mut order = [0, 1, 2, 3, 4, 5];
        let mut selectors = Vec::with_capacity(n_selectors);
        for _ in 0..n_selectors {
            let mut place = 0;
            while self.bits.bit()? {
                place += 1;
                if place == n_tables {
                    return Err(damaged("a block has a wrong table number"));
                }
            }
            order[..=place].rotate_right(1);
            selectors.push(order[0]);
        }
        let mut tables = Vec::with_capacity(n_tables);
        for _ in 0..n_tables {
            let mut length = self.bits.take(5)? as u8;
            let mut lengths = [0; 258];
            for of_symbol in &mut lengths[..n_symbols] {
                while self.bits.bit()? {
                    length = length.wrapping_add(if self.bits.bit()? { u8::MAX } else { 1 });
                }
                if !(1..=LONGEST as u8).contains(&length) {
                    return Err(damaged("a code is too long"));
                }
                *of_symbol = length;
            }
            tables.push(Table::new(&lengths[..n_symbols]));
        }
        Ok((tables, selectors))
    }

    /// Decodes symbols to the last column of the sorted block: runs of the byte in front, bytes by their place, and the end.
    fn symbols(&mut self, front: &mut [u8], tables: &[Table], selectors: &[u8]) -> io::Result<()> {
        self.links.clear();
        let end = front.len() as u16 + 1;
        let (mut run, mut weight) = (0usize, 1usize);
        for &selector in selectors {
            for _ in 0..50 {
                let symbol = tables[usize::from(selector)].symbol(&mut self.bits)?;
                if symbol < 2 {
                    run += weight << symbol;
                    weight <<= 1;
                    if run > self.limit {
                        return Err(damaged("a block is too long"));
                    }
                    continue;
                }
                self.links.resize(self.links.len() + run, u32::from(front[0]));
                (run, weight) = (0, 1);
                if self.links.len() >= self.limit + usize::from(symbol == end) {
                    return Err(damaged("a block is too long"));
                }
                if symbol == end {
                    return Ok(());
                }
                front[..usize::from(symbol)].rotate_right(1);
                self.links.push(u32::from(front[0]));
            }
        }
        Err(damaged("a block has no end"))
    }

    /// Inverts the Burrows-Wheeler transform: above each byte, the place of the one that follows it in the text.
    fn invert(&mut self, origin: usize) {
        let mut starts = [0u32; 256];
        for link in &self.links {
            starts[(link & 0xFF) as usize] += 1;
        }
        let mut start = 0;
        for entry in &mut starts {
            start += std::mem::replace(entry, start);
        }
        for k in 0..self.links.len() {
            let place = &mut starts[(self.links[k] & 0xFF) as usize];
            self.links[*place as usize] |= (k as u32) << 8;
            *place += 1;
        }
        self.at = (self.links[origin] >> 8) as usize;
        self.left = self.links.len();
        self.run = Run::default();
        self.block_sum = !0;
    }

    /// Writes bytes of the block until it or `out` ends; how many.
    fn write(&mut self, out: &mut [u8]) -> usize {
        let mut n = 0;
        while n < out.len() {
            if self.run.repeats > 0 {
                self.run.repeats -= 1;
            } else if self.left > 0 {
                let link = self.links[self.at];
                (self.at, self.left) = ((link >> 8) as usize, self.left - 1);
                let byte = link as u8;
                if self.run.length == 4 {
                    (self.run.repeats, self.run.length) = (byte, 0);
                    continue;
                }
                self.run.length = if byte == self.run.byte && self.run.length > 0 { self.run.length + 1 } else { 1 };
                self.run.byte = byte;
            } else {
                break;
            }
            out[n] = self.run.byte;
            self.block_sum = summed(self.block_sum, self.run.byte);
            n += 1;
        }
        n
    }
}

impl<R: Read> Read for Bunzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && !out.is_empty() {
            let had_block = self.left > 0 || self.run.repeats > 0;
            let n = self.write(out);
            if had_block && self.left == 0 && self.run.repeats == 0 && !self.block_sum != self.wanted_sum {
                return Err(damaged("the sum of a block is wrong"));
            }
            if n > 0 {
                return Ok(n);
            }
            self.is_over = !self.next_block()?;
        }
        Ok(0)
    }
}
