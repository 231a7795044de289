//! The faults, each one a thing that a real driver got wrong somewhere.

/// What a broken broker does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: the wrapper itself must pass.
    None,

    /// An ack has no answer.
    Hangs,
    /// A pull panics.
    Panics,

    // Settling
    /// A delivery is acked when it is pulled.
    AcksAtPull,
    /// Closing acks what was not settled.
    LosesOnClose,
    /// An ack is only remembered, and forgotten at close.
    ForgetsAcks,
    /// A retry makes two copies.
    RetriesTwice,
    /// A retry gives the original back, uncounted.
    RetriesTheOriginal,
    /// A retry keeps its original beside the copy.
    RetryKeepsTheOriginal,
    /// A retry acks first and publishes then; a close between the two loses the message.
    RetryInTwoSteps,
    /// Delayed messages come after half of their delay.
    DeliversEarly,
    /// A batch of settlements answers in reverse order.
    AnswersBackwards,
    /// A batch stops at its first error, and blames the rest for it.
    OneErrorForAll,
    /// Every message comes to two consumers.
    DeliversToBoth,

    // Leases
    /// A stale owner may settle and renew.
    SettlesStaleLeases,
    /// A renewal is confirmed and not made.
    ExtendsNothing,
    /// A delivery is its owner's for ever.
    NeverExpires,
    /// A delivery is its owner's for a quarter of its lease.
    ExpiresEarly,
    /// A release is confirmed and not made.
    ReleasesNothing,
    /// A release counts as an attempt.
    ReleaseCounts,
    /// Every hand-over is the first.
    CountsNoDelivery,

    // Pull
    /// A pull takes one more than asked for.
    PullsMore,
    /// A pull takes all there is and keeps it in the process.
    Prefetches,
    /// What a woken pull holds is stranded.
    WakeStrands,
    /// A wake without a waiting pull is forgotten.
    ForgetsWake,
    /// A message does not end a wait that began before it.
    SleepsOn,

    // Topics
    /// A retry goes back through the topic.
    RetriesToTheTopic,
    /// A topic's message reaches its first group alone.
    OneGroupGets,
    /// A message for one group reaches all of them.
    AllGroupsGet,
    /// A required group is not asked for.
    NoGroupNeeded,
    /// Removing a group is confirmed and not done.
    KeepsTheGroup,
    /// The last group is not listed.
    ListsTooFew,

    // Bytes
    /// A body ends at 64 KiB.
    CutsBodies,
    /// A body ends at its first NUL.
    StopsAtNul,
    /// A body is text.
    BodiesAreText,
    /// A stamp's name is there once.
    StampsAreAMap,
    /// A stamp's value is text.
    StampsAreText,
    /// Headers end at 4 KiB.
    CutsHeaders,
    /// The track is not written.
    DropsTheTrack,
    /// The time is in seconds.
    RoundsTime,
    /// Ids are cut at 36 bytes.
    CutsIds,

    // Operations
    /// Delayed messages are counted as waiting.
    CountsDelayedAsWaiting,
    /// Nothing is ever in flight.
    CountsNothingInFlight,
    /// The age of the oldest is that of the first message ever.
    CountsAgeForEver,
    /// A find gives the first alone.
    FindsTheFirst,
    /// Everything browsed is waiting.
    ShowsAllAsWaiting,
    /// There is no second page.
    OnePage,
    /// Removing is confirmed and not done.
    RemovesNothing,
    /// A record is stored as often as it is sent.
    StoresTwice,
    /// A message for nowhere is confirmed.
    ConfirmsNowhere,
    /// A closed connection confirms what is published.
    ConfirmsAfterClose,
    /// An error shows the password.
    ShowsThePassword,
    /// An error names nothing.
    NamesNothing,
    /// Verifying creates.
    VerifyCreates,
    /// `a-b` and `a.b` are one queue.
    MixesNames,
    /// The capability table says nothing of leases.
    HidesItsLeases,
    /// There is always more to tend.
    TendsForEver,
}
