//! The calling thread's current context: this crate's during a driver call, and the caller's again afterwards.
//!
//! Other CUDA libraries in the process keep a context current and expect to find it unchanged. If this crate's context
//! is already current, as on PyTorch's threads, which use the primary context too, a call costs one query. Otherwise it
//! costs a push and a pop.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;

/// A driver handle: context, stream, module, function, event or pool.
pub(crate) type Handle = *mut c_void;

/// The driver's context stack of the calling thread. Errors are the failed call and the driver's status.
pub(crate) trait ContextStack {
    /// The context on top; null if there is none.
    fn top(&self) -> Result<Handle, (&'static str, u32)>;
    /// Pushes a context.
    fn push(&self, context: Handle) -> Result<(), (&'static str, u32)>;
    /// Pops the top context. It is only called after a push, so there is one.
    fn pop(&self);
}

/// A guard that keeps a context current. When it is dropped, the previous context is current again.
pub(crate) struct Entered<'a, S: ContextStack> {
    stack: &'a S,
    pushed: bool,
    /// The stack belongs to the thread, so the guard is not `Send`.
    thread: PhantomData<*const ()>,
}

impl<'a, S: ContextStack> Entered<'a, S> {
    /// Makes a context current.
    pub(crate) fn new(stack: &'a S, context: Handle) -> Result<Self, (&'static str, u32)> {
        let pushed = stack.top()? != context;
        if pushed {
            stack.push(context)?;
        }
        Ok(Entered { stack, pushed, thread: PhantomData })
    }
}

impl<S: ContextStack> Deref for Entered<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.stack
    }
}

impl<S: ContextStack> Drop for Entered<'_, S> {
    fn drop(&mut self) {
        if self.pushed {
            self.stack.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A fake driver stack that counts its changes.
    #[derive(Default)]
    struct Fake {
        stack: RefCell<Vec<usize>>,
        changes: Cell<u32>,
        broken: bool,
    }

    impl ContextStack for Fake {
        fn top(&self) -> Result<Handle, (&'static str, u32)> {
            Ok(self.stack.borrow().last().copied().unwrap_or_default() as Handle)
        }

        fn push(&self, context: Handle) -> Result<(), (&'static str, u32)> {
            if self.broken {
                return Err(("cuCtxPushCurrent", 709));
            }
            self.changes.set(self.changes.get() + 1);
            self.stack.borrow_mut().push(context as usize);
            Ok(())
        }

        fn pop(&self) {
            self.changes.set(self.changes.get() + 1);
            self.stack.borrow_mut().pop();
        }
    }

    const OURS: usize = 16;
    const THEIRS: usize = 32;

    fn enter(fake: &Fake) -> Entered<'_, Fake> {
        Entered::new(fake, OURS as Handle).unwrap_or_else(|e| panic!("{e:?}"))
    }

    #[test]
    fn the_callers_context_is_current_again_afterwards() {
        for before in [vec![], vec![THEIRS], vec![OURS, THEIRS]] {
            let fake = Fake { stack: RefCell::new(before.clone()), ..Fake::default() };
            let entered = enter(&fake);
            assert_eq!(entered.top().ok(), Some(OURS as Handle));
            drop(entered);
            assert_eq!((fake.stack.take(), fake.changes.get()), (before, 2));
        }
    }

    #[test]
    fn what_is_current_already_is_left_alone() {
        let fake = Fake { stack: RefCell::new(vec![THEIRS, OURS]), ..Fake::default() };
        drop(enter(&fake));
        assert_eq!((fake.stack.take(), fake.changes.get()), (vec![THEIRS, OURS], 0));
    }

    #[test]
    fn entries_nest() {
        let fake = Fake { stack: RefCell::new(vec![THEIRS]), ..Fake::default() };
        let outer = enter(&fake);
        drop(enter(&fake));
        assert_eq!(fake.top().ok(), Some(OURS as Handle));
        drop(outer);
        assert_eq!((fake.stack.take(), fake.changes.get()), (vec![THEIRS], 2));
    }

    #[test]
    fn a_context_that_cannot_be_entered_changes_nothing() {
        let fake = Fake { stack: RefCell::new(vec![THEIRS]), broken: true, ..Fake::default() };
        assert_eq!(Entered::new(&fake, OURS as Handle).err(), Some(("cuCtxPushCurrent", 709)));
        assert_eq!((fake.stack.take(), fake.changes.get()), (vec![THEIRS], 0));
    }
}
