//! The shadow of a region: for each cell, the last write, the reads since, and the operations in flight.

use super::record::{Crew, Entry, Record, Touch, Who};
use super::{AgentId, Clocks, Epoch, Reach};

/// Bytes of a page of shadow.
const PAGE: u64 = 1024;
/// The widest cell is 16 bytes.
const WIDEST: u32 = 4;
/// Records kept beside a cell. If there are more, they are accesses that nothing orders, and the oldest are forgotten.
const MOST: usize = 4096;

/// Why an access is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Conflict {
    /// Not ordered with this access.
    Race(Other),
    /// Ordered, but a generic write and an access through another proxy without a proxy fence of this memory in between, or with
    /// one of other memory.
    Proxy(Other, Reach, bool),
    /// Some asynchronous operation still uses these bytes.
    InFlight,
    /// A write of bytes that `.nc` loads read, or the reverse.
    NonCoherent(Option<Other>),
}

/// The earlier access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Other {
    pub(crate) agent: AgentId,
    pub(crate) line: u32,
    pub(crate) touch: Touch,
}

/// The effect of an operation in flight on the bytes that it marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flying {
    Read,
    Write,
    Reduce,
}

/// Accesses of one cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: Record,
    reader: Record,
    /// Index of further records, plus 1; 0 if there are none.
    more: u32,
    /// An `.nc` load has read it.
    non_coherent: bool,
    /// Some of the further records may be of writes.
    more_writes: bool,
}

/// Operations in flight over a cell.
#[derive(Clone, Copy, Debug, Default)]
struct Flights {
    reads: u32,
    writes: u32,
    reductions: u32,
}

/// Cells of a page of `PAGE` bytes, as narrow as the narrowest access to them so far.
#[derive(Clone, Debug, Default)]
struct Page {
    shift: u32,
    cells: Vec<Cell>,
    /// As many as there are cells, or none.
    flights: Vec<Flights>,
    /// The number of cells marked in flight, summed over operations.
    flying: u64,
}

/// Shadow of a region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    pages: Vec<Page>,
    lists: Lists,
}

impl Shadow {
    /// Checks an access against all before it, and enters it.
    pub(crate) fn access(&mut self, offset: u64, len: u64, entry: &Entry, clocks: &Clocks) -> Result<(), Conflict> {
        self.enter(offset, len, &Who::new(entry, clocks), entry)
    }

    /// The same for a lane of a warp.
    #[inline]
    pub(crate) fn access_by(
        &mut self,
        offset: u64,
        len: u64,
        crew: &mut Crew<'_>,
        lane: usize,
    ) -> Result<(), Conflict> {
        let who = crew.who(lane);
        let entered = self.enter(offset, len, &who, &crew.entry);
        crew.keep(&who);
        entered
    }

    #[inline]
    fn enter(&mut self, offset: u64, len: u64, who: &Who<'_>, entry: &Entry) -> Result<(), Conflict> {
        let Shadow { pages, lists } = self;
        // Most accesses meet exactly one cell.
        if let Some(page) = pages.get_mut((offset / PAGE) as usize)
            && len == 1 << page.shift
            && page.flying == 0
            && let Some(cell) = page.cells.get_mut(((offset % PAGE) >> page.shift) as usize)
            && offset & (len - 1) == 0
        {
            return cell.access(who, entry, lists);
        }
        self.each(offset, len, |lists, page, range| {
            if page.flying > 0 {
                check_flights(page, range.clone(), entry.touch)?;
            }
            for cell in page.cells.get_mut(range).unwrap_or_default() {
                cell.access(who, entry, lists)?;
            }
            Ok(())
        })
    }

    /// Checks an asynchronous operation that begins, and marks its bytes.
    pub(crate) fn begin(&mut self, offset: u64, len: u64, entry: &Entry, clocks: &Clocks) -> Result<(), Conflict> {
        let who = Who::new(entry, clocks);
        let kind = flying(entry.touch);
        self.each(offset, len, |lists, page, range| {
            if page.flying > 0 {
                check_flights(page, range.clone(), entry.touch)?;
            }
            for cell in page.cells.get(range.clone()).unwrap_or_default() {
                cell.check(&who, entry, lists)?;
            }
            page.mark(range, kind, true);
            Ok(())
        })
    }

    /// Removes the marks and enters the operation as done at an epoch.
    pub(crate) fn finish(&mut self, offset: u64, len: u64, entry: &Entry, epoch: Epoch, clocks: &Clocks) {
        let record = record_of(entry, epoch, clocks);
        let kind = flying(entry.touch);
        let _: Result<(), Conflict> = self.each(offset, len, |lists, page, range| {
            page.mark(range.clone(), kind, false);
            for cell in page.cells.get_mut(range).unwrap_or_default() {
                match kind {
                    Flying::Write => cell.overwrite(record, lists),
                    Flying::Reduce => lists.push(cell, record),
                    Flying::Read if cell.reader.is_empty() || cell.reader.precedes(&record) => cell.reader = record,
                    Flying::Read => {
                        if !cell.reader.absorb(&record) {
                            lists.push(cell, record);
                        }
                    }
                }
            }
            Ok(())
        });
    }

    /// Enters a write that was checked as one of another agent at an epoch, which its thread knows.
    pub(crate) fn attribute(&mut self, offset: u64, len: u64, entry: &Entry, epoch: Epoch, clocks: &Clocks) {
        let record = record_of(entry, epoch, clocks);
        let _: Result<(), Conflict> = self.each(offset, len, |lists, page, range| {
            for cell in page.cells.get_mut(range).unwrap_or_default() {
                cell.overwrite(record, lists);
            }
            Ok(())
        });
    }

    /// Calls `f` for the cells of each page in a range.
    fn each<F>(&mut self, offset: u64, len: u64, mut f: F) -> Result<(), Conflict>
    where
        F: FnMut(&mut Lists, &mut Page, std::ops::Range<usize>) -> Result<(), Conflict>,
    {
        let Shadow { pages, lists } = self;
        let (mut at, end) = (offset, offset.saturating_add(len));
        while at < end {
            let stop = end.min((at / PAGE + 1) * PAGE);
            let (from, to) = ((at % PAGE) as u32, (stop - at / PAGE * PAGE) as u32);
            let number = (at / PAGE) as usize;
            if pages.len() <= number {
                pages.resize_with(number + 1, Page::default);
            }
            if let Some(page) = pages.get_mut(number) {
                page.narrow((from | to).trailing_zeros().min(WIDEST), lists);
                f(lists, page, (from >> page.shift) as usize..(to >> page.shift) as usize)?;
            }
            at = stop;
        }
        Ok(())
    }
}

fn record_of(entry: &Entry, epoch: Epoch, clocks: &Clocks) -> Record {
    let info = entry.info();
    match clocks.thread(epoch.agent) {
        Some(_) => {
            let lane = clocks.seat(epoch.agent).slot % 32;
            Record { owner: epoch.agent.0 - lane, time: epoch.time, lanes: 1 << lane, info }
        }
        None => Record { owner: epoch.agent.0, time: epoch.time, lanes: 1, info },
    }
}

fn flying(touch: Touch) -> Flying {
    match touch {
        Touch::Load | Touch::AsyncRead => Flying::Read,
        Touch::Store | Touch::AsyncWrite => Flying::Write,
        Touch::Atomic | Touch::AsyncReduce => Flying::Reduce,
    }
}

fn check_flights(page: &Page, range: std::ops::Range<usize>, touch: Touch) -> Result<(), Conflict> {
    let hit = page.flights.get(range).unwrap_or_default().iter().any(|f| match touch {
        Touch::Load | Touch::AsyncRead => f.writes + f.reductions > 0,
        Touch::Store | Touch::AsyncWrite => f.writes + f.reductions + f.reads > 0,
        Touch::Atomic | Touch::AsyncReduce => f.writes + f.reads > 0,
    });
    if hit { Err(Conflict::InFlight) } else { Ok(()) }
}

impl Page {
    /// Makes cells of at most `1 << shift` bytes.
    fn narrow(&mut self, shift: u32, lists: &mut Lists) {
        if self.cells.is_empty() {
            self.shift = shift;
            self.cells = vec![Cell::default(); (PAGE >> shift) as usize];
        } else if shift < self.shift {
            let copies = 1 << (self.shift - shift);
            let mut cells = Vec::with_capacity((PAGE >> shift) as usize);
            for cell in &self.cells {
                cells.push(*cell);
                for _ in 1..copies {
                    cells.push(Cell { more: lists.copy(cell.more), ..*cell });
                }
            }
            self.cells = cells;
            self.flights = self.flights.iter().flat_map(|f| std::iter::repeat_n(*f, copies)).collect();
            self.flying = self.flying.saturating_mul(copies as u64);
            self.shift = shift;
        }
    }

    fn mark(&mut self, range: std::ops::Range<usize>, kind: Flying, on: bool) {
        if self.flights.is_empty() {
            self.flights = vec![Flights::default(); self.cells.len()];
        }
        let cells = range.len() as u64;
        for f in self.flights.get_mut(range).unwrap_or_default() {
            let count = match kind {
                Flying::Read => &mut f.reads,
                Flying::Write => &mut f.writes,
                Flying::Reduce => &mut f.reductions,
            };
            *count = if on { count.saturating_add(1) } else { count.saturating_sub(1) };
        }
        self.flying = if on { self.flying + cells } else { self.flying.saturating_sub(cells) };
    }
}

impl Cell {
    /// Checks whether an access may follow all earlier ones of the cell.
    #[inline]
    fn check(&self, who: &Who<'_>, entry: &Entry, lists: &Lists) -> Result<(), Conflict> {
        let writes = entry.touch.writes();
        against(&self.writer, who, entry)?;
        if writes {
            against(&self.reader, who, entry)?;
            if self.non_coherent {
                return Err(Conflict::NonCoherent(None));
            }
        } else if entry.non_coherent && !self.writer.is_empty() {
            return Err(Conflict::NonCoherent(Some(other(&self.writer, self.writer.owner))));
        }
        if writes || self.more_writes {
            for record in lists.of(self.more) {
                if writes || record.info.writes() {
                    against(record, who, entry)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn access(&mut self, who: &Who<'_>, entry: &Entry, lists: &mut Lists) -> Result<(), Conflict> {
        self.check(who, entry, lists)?;
        let new = who.record;
        if !entry.touch.writes() {
            self.non_coherent |= entry.non_coherent;
            if self.reader.absorb(&new) {
                return Ok(());
            }
            if self.more != 0 && lists.absorb(self.more, &new) {
                return Ok(());
            }
            let keep = !self.reader.obsolete(who);
            lists.prune(self, who);
            if keep {
                lists.push(self, new);
            } else {
                self.reader = new;
            }
        } else if entry.strong.is_none() {
            self.overwrite(new, lists);
        } else {
            if self.writer.absorb(&new) || (self.more != 0 && lists.absorb(self.more, &new)) {
                return Ok(());
            }
            let keep = !self.writer.obsolete(who);
            if self.reader.obsolete(who) {
                self.reader = Record::default();
            }
            lists.prune(self, who);
            if keep {
                lists.push(self, new);
            } else {
                self.writer = new;
            }
        }
        Ok(())
    }

    /// A write that is ordered after all earlier accesses.
    fn overwrite(&mut self, record: Record, lists: &mut Lists) {
        self.writer = record;
        self.reader = Record::default();
        if self.more != 0 {
            lists.drop(self.more);
            (self.more, self.more_writes) = (0, false);
        }
    }
}

#[inline]
fn against(old: &Record, who: &Who<'_>, entry: &Entry) -> Result<(), Conflict> {
    if old.is_empty() || who.has_followed(old) || who.tolerates(old) {
        return Ok(());
    }
    if let Some(agent) = who.unordered(old) {
        return Err(Conflict::Race(other(old, agent.0)));
    }
    if let Some(memory) = entry.proxy
        && !old.info.proxy()
        && old.info.writes()
        && let Some((agent, elsewhere)) = who.invisible(old, memory)
    {
        return Err(Conflict::Proxy(other(old, agent.0), memory, elsewhere));
    }
    who.follow(old);
    Ok(())
}

fn other(record: &Record, agent: u32) -> Other {
    Other { agent: AgentId(agent), line: record.info.line(), touch: record.info.touch() }
}

/// The records beside those in cells.
#[derive(Clone, Debug, Default)]
struct Lists {
    lists: Vec<Vec<Record>>,
    free: Vec<u32>,
}

impl Lists {
    fn of(&self, more: u32) -> &[Record] {
        if more == 0 {
            return &[];
        }
        self.lists.get(more as usize - 1).map_or(&[], Vec::as_slice)
    }

    fn absorb(&mut self, more: u32, new: &Record) -> bool {
        let list = (more as usize).checked_sub(1).and_then(|i| self.lists.get_mut(i));
        list.is_some_and(|list| list.iter_mut().rev().any(|r| r.absorb(new)))
    }

    fn push(&mut self, cell: &mut Cell, record: Record) {
        cell.more_writes |= record.info.writes();
        if cell.more == 0 {
            cell.more = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                self.lists.len() as u32
            });
        }
        if let Some(list) = self.lists.get_mut(cell.more as usize - 1)
            && !list.iter_mut().rev().any(|r| r.absorb(&record))
        {
            if let Some(old) = list.iter_mut().find(|r| r.precedes(&record)) {
                *old = record;
                return;
            }
            if list.len() >= MOST {
                list.remove(0);
            }
            list.push(record);
        }
    }

    fn prune(&mut self, cell: &mut Cell, who: &Who<'_>) {
        if cell.more == 0 {
            return;
        }
        let Some(list) = self.lists.get_mut(cell.more as usize - 1) else { return };
        list.retain(|r| !r.obsolete(who));
        if list.is_empty() {
            self.free.push(cell.more);
            (cell.more, cell.more_writes) = (0, false);
        }
    }

    fn drop(&mut self, more: u32) {
        if let Some(list) = (more as usize).checked_sub(1).and_then(|i| self.lists.get_mut(i)) {
            list.clear();
            self.free.push(more);
        }
    }

    fn copy(&mut self, more: u32) -> u32 {
        let list = self.of(more).to_vec();
        if list.is_empty() {
            return 0;
        }
        self.lists.push(list);
        self.lists.len() as u32
    }
}
