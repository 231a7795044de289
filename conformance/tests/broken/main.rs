//! The suite itself is tested: a broker with one planted fault fails where it should, and nowhere else.

#![allow(missing_docs, unreachable_pub)]

mod broker;
mod fault;
mod powers;
mod source;

use std::time::Duration;

use broker::{Broken, BrokenConfig};
use fault::Fault;
use postroom_conformance::{Level, Report, Subject, Unreachable, Verdict, run};
use postroom_memory::{Memory, MemoryConfig};

struct Planted {
    fault: Fault,
    store: String,
}

impl Planted {
    fn broken(&self, nowhere: bool) -> BrokenConfig<MemoryConfig> {
        BrokenConfig { inner: MemoryConfig::new(&self.store), fault: self.fault, nowhere }
    }
}

impl Subject for Planted {
    type Broker = Broken<Memory>;

    fn config(&self) -> BrokenConfig<MemoryConfig> {
        self.broken(false)
    }
    fn lease(&self) -> Duration {
        Duration::from_millis(300)
    }
    fn patience(&self) -> Duration {
        Duration::from_secs(4)
    }
    fn limit(&self) -> Duration {
        Duration::from_secs(if self.fault == Fault::Hangs { 1 } else { 30 })
    }
    fn unreachable(&self) -> Option<Unreachable<BrokenConfig<MemoryConfig>>> {
        Some(Unreachable { config: self.broken(true), named: "nowhere.example:1", secret: Some("hunter2") })
    }
}

fn with(fault: Fault) -> Report {
    run(Planted { fault, store: format!("broken-{fault:?}") }, Level::Bare, "")
}

/// Every one of `must` fails, and nothing outside of `must` and `may`; an entry is a group or a scenario.
fn fails(fault: Fault, must: &[&str], may: &[&str]) {
    let report = with(fault);
    let failed: Vec<String> = report.failed().map(|entry| format!("{}::{}", entry.group, entry.name)).collect();
    for name in must {
        assert!(failed.iter().any(|failed| failed == name), "{fault:?} went unnoticed by {name}\n{report}");
    }
    let allowed =
        |failed: &String| must.iter().chain(may).any(|name| failed == name || failed.split("::").next() == Some(name));
    let astray: Vec<_> = failed.iter().filter(|failed| !allowed(failed)).collect();
    assert!(astray.is_empty(), "{fault:?} failed elsewhere: {astray:?}\n{report}");
}

#[test]
fn the_wrapper_itself_conforms() {
    with(Fault::None).assert();
}

#[test]
fn what_hangs_or_panics_is_bounded() {
    for (fault, why) in [(Fault::Hangs, "timed out after 1s"), (Fault::Panics, "panicked: a bug in a driver")] {
        let report = run(Planted { fault, store: format!("broken-{fault:?}") }, Level::Bare, "settling::acked");
        assert_eq!(report.failed().count(), 1);
        for entry in report.failed() {
            assert_eq!(entry.verdict, Verdict::Failed(why.to_owned()));
        }
    }
}

macro_rules! faults {
    ($($test:ident: $fault:ident fails [$($must:literal),+] may [$($may:literal),*];)+) => {$(
        #[test]
        fn $test() {
            fails(Fault::$fault, &[$($must),+], &[$($may),*]);
        }
    )+};
}

faults! {
    acks_at_pull: AcksAtPull
        fails ["settling::closing_a_source_gives_back", "settling::closing_the_broker_gives_back"]
        may ["settling", "leases", "pull", "topics", "operations"];
    loses_on_close: LosesOnClose
        fails ["settling::closing_a_source_gives_back", "settling::closing_the_broker_gives_back"]
        may ["settling", "pull", "leases"];
    forgets_acks: ForgetsAcks
        fails ["settling::acked_never_comes_again"]
        may ["settling", "leases", "pull", "topics", "bytes", "operations"];
    retries_twice: RetriesTwice
        fails ["settling::retried_comes_back_counted", "settling::close_waits_for_a_whole_retry"]
        may ["settling", "topics", "bytes", "leases::stale_retry_is_refused", "operations"];
    retries_the_original: RetriesTheOriginal
        fails ["settling::retried_comes_back_counted", "settling::replacement_keeps_what_it_was_given"]
        may ["settling", "topics", "bytes", "operations::delayed_ones_are_counted_apart"];
    retry_keeps_the_original: RetryKeepsTheOriginal
        fails ["settling::replacement_keeps_what_it_was_given"]
        may ["settling", "topics", "bytes", "leases::stale_retry_is_refused", "operations"];
    retry_in_two_steps: RetryInTwoSteps
        fails ["settling::close_waits_for_a_whole_retry"]
        may [];
    delivers_early: DeliversEarly
        fails ["settling::delay_is_honoured", "settling::delayed_retry_is_honoured", "topics::a_delayed_message_reaches_every_group"]
        may ["topics::a_delayed_retry_returns_to_its_group_alone", "operations::browsing_delayed_ones_is_true"];
    answers_backwards: AnswersBackwards
        fails ["leases::extend_answers_item_by_item"]
        may ["settling::batches_answer_item_by_item"];
    one_error_for_all: OneErrorForAll
        fails ["settling::one_bad_message_in_a_batch"]
        may [];
    delivers_to_both: DeliversToBoth
        fails ["settling::two_consumers_share", "pull::sources_of_one_connection_compete"]
        may ["settling", "leases", "pull", "topics", "bytes", "operations"];

    settles_stale_leases: SettlesStaleLeases
        fails ["leases::stale_extend_is_lost", "leases::stale_ack_is_refused", "leases::stale_retry_is_refused", "leases::stale_release_is_refused"]
        may ["leases", "operations::removing_one_in_flight_fences_its_owner"];
    extends_nothing: ExtendsNothing
        fails ["leases::extend_keeps_it_for_five_leases", "leases::stale_extend_is_lost", "leases::extend_answers_item_by_item"]
        may [];
    never_expires: NeverExpires
        fails ["leases::expiry_gives_it_to_another"]
        may ["leases"];
    expires_early: ExpiresEarly
        fails ["leases::expiry_gives_it_to_another"]
        may ["leases"];
    releases_nothing: ReleasesNothing
        fails ["leases::release_is_immediate", "leases::release_counts_nothing"]
        may ["leases", "settling", "topics::a_release_stays_in_its_group",
             "topics::an_ack_in_one_takes_nothing_from_the_other",
             "pull::a_release_ends_the_wait", "operations::figures_are_true_in_every_state"];
    release_counts: ReleaseCounts
        fails ["leases::release_counts_nothing"]
        may ["settling::batches_answer_item_by_item", "settling::sent_arrives_with_its_id_and_place"];
    counts_no_delivery: CountsNoDelivery
        fails ["leases::expiry_gives_it_to_another"]
        may [];

    pulls_more: PullsMore
        fails ["pull::at_most_max"]
        may ["settling", "leases", "pull", "topics", "bytes", "operations"];
    prefetches: Prefetches
        fails ["pull::what_was_not_asked_for_stays", "pull::a_backlog_stays_on_the_broker"]
        may ["pull", "settling::two_consumers_share", "operations::figures_are_true_in_every_state",
             "operations::browsing_is_true_in_every_state", "topics::groups_are_counted_apart",
             "topics::members_of_a_group_compete", "operations", "leases"];
    wake_strands: WakeStrands
        fails ["pull::wake_at_any_moment_strands_nothing"]
        may ["pull"];
    forgets_wake: ForgetsWake
        fails ["pull::wake_before_a_pull"]
        may ["pull::wake_ends_a_waiting_pull"];
    sleeps_on: SleepsOn
        fails ["pull::a_message_ends_the_wait"]
        may ["pull", "settling", "leases::expiry_gives_it_to_another", "leases"];

    retries_to_the_topic: RetriesToTheTopic
        fails ["topics::a_retry_returns_to_its_group_alone", "topics::a_delayed_retry_returns_to_its_group_alone"]
        may [];
    one_group_gets: OneGroupGets
        fails ["topics::two_groups_get_all"]
        may ["topics", "operations::groups_are_counted_apart"];
    all_groups_get: AllGroupsGet
        fails ["topics::sending_to_a_group_reaches_it_alone"]
        may ["topics", "operations"];
    no_group_needed: NoGroupNeeded
        fails ["topics::a_topic_without_groups_takes_and_drops"]
        may [];
    keeps_the_group: KeepsTheGroup
        fails ["topics::a_removed_group_is_gone"]
        may [];
    lists_too_few: ListsTooFew
        fails ["topics::a_group_is_listed"]
        may ["topics::a_removed_group_is_gone"];

    cuts_bodies: CutsBodies
        fails ["bytes::one_mebibyte_survives"]
        may [];
    stops_at_nul: StopsAtNul
        fails ["bytes::hostile_text_survives", "bytes::every_byte_survives"]
        may ["bytes::one_mebibyte_survives"];
    bodies_are_text: BodiesAreText
        fails ["bytes::every_byte_survives"]
        may ["bytes::one_mebibyte_survives"];
    stamps_are_a_map: StampsAreAMap
        fails ["bytes::stamps_keep_order_and_repeats"]
        may [];
    stamps_are_text: StampsAreText
        fails ["bytes::stamps_keep_order_and_repeats"]
        may [];
    cuts_headers: CutsHeaders
        fails ["bytes::many_stamps_survive", "bytes::a_full_history_survives"]
        may [];
    drops_the_track: DropsTheTrack
        fails ["bytes::the_track_survives", "operations::found_by_record_id"]
        may ["bytes", "leases::release_counts_nothing", "operations::a_record_is_stored_once"];
    rounds_time: RoundsTime
        fails ["bytes::all_metadata_survives"]
        may ["bytes"];
    cuts_ids: CutsIds
        fails ["bytes::odd_ids_survive"]
        may [];

    counts_delayed_as_waiting: CountsDelayedAsWaiting
        fails ["operations::delayed_ones_are_counted_apart"]
        may [];
    counts_nothing_in_flight: CountsNothingInFlight
        fails ["operations::figures_are_true_in_every_state"]
        may ["operations", "pull::a_backlog_stays_on_the_broker", "leases"];
    counts_age_for_ever: CountsAgeForEver
        fails ["operations::the_oldest_is_as_old_as_it_is"]
        may [];
    finds_the_first: FindsTheFirst
        fails ["operations::found_by_id", "operations::two_groups_leave_two_records"]
        may [];
    shows_all_as_waiting: ShowsAllAsWaiting
        fails ["operations::browsing_is_true_in_every_state"]
        may [];
    one_page: OnePage
        fails ["operations::paging_goes_past_a_thousand"]
        may [];
    removes_nothing: RemovesNothing
        fails ["operations::removing_a_browsed_one_removes_it", "operations::replaying_leaves_no_stale_original"]
        may ["operations"];
    stores_twice: StoresTwice
        fails ["operations::a_record_is_stored_once"]
        may ["operations::found_by_record_id"];
    confirms_nowhere: ConfirmsNowhere
        fails ["operations::publishing_nowhere_is_unroutable"]
        may ["settling::one_bad_message_in_a_batch", "topics::a_topic_without_groups_takes_and_drops"];
    confirms_after_close: ConfirmsAfterClose
        fails ["operations::use_after_close_is_an_error"]
        may [];
    shows_the_password: ShowsThePassword
        fails ["operations::an_unreachable_broker_is_named"]
        may [];
    names_nothing: NamesNothing
        fails ["operations::an_unreachable_broker_is_named"]
        may [];
    verify_creates: VerifyCreates
        fails ["operations::a_missing_place_is_not_found"]
        may [];
    mixes_names: MixesNames
        fails ["operations::names_that_look_alike_are_apart"]
        may ["operations::derived_names_are_apart", "operations::the_longest_names_work_or_are_refused"];
    hides_its_leases: HidesItsLeases
        fails ["operations::powers_agree_with_capabilities"]
        may [];
    tends_for_ever: TendsForEver
        fails ["operations::tending_ends"]
        may [];
}
