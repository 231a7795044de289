//! Which scenarios must find a fault, and what else may fail by it.

use crate::{Expected, fault::Fault::*};

/// Every fault, at the bare level.
pub const BARE: &[Expected] = &[
    (
        AcksAtPull,
        &["settling::closing_a_source_gives_back", "settling::closing_the_broker_gives_back"],
        &["settling", "leases", "pull", "topics", "operations"],
    ),
    (
        LosesOnClose,
        &["settling::closing_a_source_gives_back", "settling::closing_the_broker_gives_back"],
        &["settling", "pull", "leases", "operations::use_after_close_is_an_error"],
    ),
    (
        ForgetsAcks,
        &["settling::acked_never_comes_again"],
        &["settling", "leases", "pull", "topics", "bytes", "operations"],
    ),
    (
        RetriesTwice,
        &["settling::retried_comes_back_counted", "settling::close_waits_for_a_whole_retry"],
        &[
            "settling",
            "topics",
            "bytes",
            "leases::stale_retry_is_refused",
            "operations",
            "leases::a_stale_token_of_the_same_owner_is_refused",
        ],
    ),
    (
        RetriesTheOriginal,
        &["settling::retried_comes_back_counted", "settling::replacement_keeps_what_it_was_given"],
        &["settling", "topics", "bytes", "operations::delayed_ones_are_counted_apart"],
    ),
    (
        RetryKeepsTheOriginal,
        &["settling::replacement_keeps_what_it_was_given"],
        &[
            "settling",
            "topics",
            "bytes",
            "leases::stale_retry_is_refused",
            "operations",
            "leases::a_stale_token_of_the_same_owner_is_refused",
        ],
    ),
    (RetryInTwoSteps, &["settling::close_waits_for_a_whole_retry"], &[]),
    (
        DeliversEarly,
        &[
            "settling::delay_is_honoured",
            "settling::delayed_retry_is_honoured",
            "topics::a_delayed_message_reaches_every_group",
        ],
        &[
            "topics::a_delayed_retry_returns_to_its_group_alone",
            "operations::browsing_delayed_ones_is_true",
            "settling::a_delay_longer_than_a_lease_is_kept",
            "settling::a_delay_outlives_its_sender",
        ],
    ),
    (AnswersBackwards, &["leases::extend_answers_item_by_item"], &["settling::batches_answer_item_by_item"]),
    (OneErrorForAll, &["settling::one_bad_message_in_a_batch"], &[]),
    (
        DeliversToBoth,
        &["settling::two_consumers_share", "pull::sources_of_one_connection_compete"],
        &["settling", "leases", "pull", "topics", "bytes", "operations"],
    ),
    (
        SettlesStaleLeases,
        &[
            "leases::stale_extend_is_lost",
            "leases::stale_ack_is_refused",
            "leases::stale_retry_is_refused",
            "leases::stale_release_is_refused",
        ],
        &["leases", "operations::removing_one_in_flight_fences_its_owner"],
    ),
    (
        ExtendsNothing,
        &[
            "leases::extend_keeps_it_for_five_leases",
            "leases::stale_extend_is_lost",
            "leases::extend_answers_item_by_item",
        ],
        &[],
    ),
    (NeverExpires, &["leases::expiry_gives_it_to_another"], &["leases"]),
    (ExpiresEarly, &["leases::expiry_gives_it_to_another"], &["leases"]),
    (
        ReleasesNothing,
        &["leases::release_is_immediate", "leases::release_counts_nothing"],
        &[
            "leases",
            "settling",
            "topics::a_release_stays_in_its_group",
            "topics::an_ack_in_one_takes_nothing_from_the_other",
            "pull::a_release_ends_the_wait",
            "operations::figures_are_true_in_every_state",
            "operations::use_after_close_is_an_error",
        ],
    ),
    (
        ReleaseCounts,
        &["leases::release_counts_nothing"],
        &["settling::batches_answer_item_by_item", "settling::sent_arrives_with_its_id_and_place"],
    ),
    (CountsNoDelivery, &["leases::expiry_gives_it_to_another"], &[]),
    (PullsMore, &["pull::at_most_max"], &["settling", "leases", "pull", "topics", "bytes", "operations"]),
    (
        Prefetches,
        &["pull::what_was_not_asked_for_stays", "pull::a_backlog_stays_on_the_broker"],
        &[
            "pull",
            "settling::two_consumers_share",
            "operations::figures_are_true_in_every_state",
            "operations::browsing_is_true_in_every_state",
            "topics::groups_are_counted_apart",
            "topics::members_of_a_group_compete",
            "operations",
            "leases",
        ],
    ),
    (WakeStrands, &["pull::wake_at_any_moment_strands_nothing"], &["pull"]),
    (ForgetsWake, &["pull::wake_before_a_pull"], &["pull::wake_ends_a_waiting_pull"]),
    (
        SleepsOn,
        &["pull::a_message_ends_the_wait"],
        &["pull", "settling", "leases::expiry_gives_it_to_another", "leases"],
    ),
    (
        RetriesToTheTopic,
        &["topics::a_retry_returns_to_its_group_alone", "topics::a_delayed_retry_returns_to_its_group_alone"],
        &[],
    ),
    (OneGroupGets, &["topics::two_groups_get_all"], &["topics", "operations::groups_are_counted_apart"]),
    (AllGroupsGet, &["topics::sending_to_a_group_reaches_it_alone"], &["topics", "operations"]),
    (NoGroupNeeded, &["topics::a_topic_without_groups_takes_and_drops"], &[]),
    (KeepsTheGroup, &["topics::a_removed_group_is_gone"], &[]),
    (ListsTooFew, &["topics::a_group_is_listed"], &["topics::a_removed_group_is_gone"]),
    (CutsBodies, &["bytes::one_mebibyte_survives"], &[]),
    (StopsAtNul, &["bytes::hostile_text_survives", "bytes::every_byte_survives"], &["bytes::one_mebibyte_survives"]),
    (BodiesAreText, &["bytes::every_byte_survives"], &["bytes::one_mebibyte_survives"]),
    (StampsAreAMap, &["bytes::stamps_keep_order_and_repeats"], &[]),
    (StampsAreText, &["bytes::stamps_keep_order_and_repeats"], &[]),
    (
        CutsHeaders,
        &["bytes::many_stamps_survive", "bytes::a_long_history_survives"],
        &["bytes::the_longest_history_loses_text_alone"],
    ),
    (
        DropsTheTrack,
        &["bytes::the_track_survives", "operations::found_by_record_id"],
        &["bytes", "leases::release_counts_nothing", "operations::a_record_is_stored_once"],
    ),
    (RoundsTime, &["bytes::all_metadata_survives"], &["bytes"]),
    (CutsIds, &["bytes::odd_ids_survive"], &[]),
    (CountsDelayedAsWaiting, &["operations::delayed_ones_are_counted_apart"], &[]),
    (
        CountsNothingInFlight,
        &["operations::figures_are_true_in_every_state"],
        &["operations", "pull::a_backlog_stays_on_the_broker", "leases"],
    ),
    (CountsAgeForEver, &["operations::the_oldest_is_as_old_as_it_is"], &[]),
    (FindsTheFirst, &["operations::found_by_id", "operations::two_groups_leave_two_records"], &[]),
    (ShowsAllAsWaiting, &["operations::browsing_is_true_in_every_state"], &[]),
    (OnePage, &["operations::paging_goes_past_a_thousand"], &[]),
    (
        RemovesNothing,
        &["operations::removing_a_browsed_one_removes_it", "operations::replaying_leaves_no_stale_original"],
        &["operations"],
    ),
    (StoresTwice, &["operations::a_record_is_stored_once"], &["operations::found_by_record_id"]),
    (
        ConfirmsNowhere,
        &["operations::publishing_nowhere_is_unroutable"],
        &["settling::one_bad_message_in_a_batch", "topics::a_topic_without_groups_takes_and_drops"],
    ),
    (ConfirmsAfterClose, &["operations::use_after_close_is_an_error"], &[]),
    (ShowsThePassword, &["operations::an_unreachable_broker_is_named"], &[]),
    (NamesNothing, &["operations::an_unreachable_broker_is_named"], &[]),
    (VerifyCreates, &["operations::a_missing_place_is_not_found"], &[]),
    (
        MixesNames,
        &["operations::names_that_look_alike_are_apart"],
        &["operations::derived_names_are_apart", "operations::the_longest_names_work_or_are_refused"],
    ),
    (HidesItsLeases, &["operations::powers_agree_with_capabilities"], &[]),
    (TendsForEver, &["operations::tending_ends"], &[]),
];

/// Those that a node must notice too.
pub const ACTORS: &[Expected] = &[
    (
        AcksAtPull,
        &["leases::a_dead_process_loses_nothing"],
        &["settling", "leases", "operations::figures_tell_the_truth", "operations::a_backlog_stays_on_the_broker"],
    ),
    (ForgetsAcks, &["settling::acked_never_comes_again"], &["settling", "leases", "topics", "operations"]),
    (
        RetriesTwice,
        &["settling::erred_comes_back_counted", "settling::bodies_survive"],
        &["settling", "topics", "operations", "leases"],
    ),
    (RetriesTheOriginal, &["settling::erred_comes_back_counted"], &["settling", "topics", "operations", "leases"]),
    (DeliversEarly, &["settling::a_delay_is_honoured", "settling::an_asked_delay_is_honoured"], &[]),
    (
        ExtendsNothing,
        &["leases::a_long_handler_runs_once", "leases::a_blocking_handler_runs_once"],
        &["leases::leases_are_renewed_during_a_stop", "operations::the_original_stays_while_the_store_is_down"],
    ),
    (
        ReleasesNothing,
        &["settling::what_has_not_started_goes_back_at_once"],
        // A suspect that is only looked for is released until the process is quiet.
        &["settling", "leases::a_killer_among_innocents_is_failed_alone"],
    ),
    (CountsNoDelivery, &["leases::a_killer_among_innocents_is_failed_alone"], &[]),
    (
        RetriesToTheTopic,
        &["topics::a_retry_returns_to_its_group_alone"],
        &["topics::a_delayed_retry_returns_to_its_group_alone"],
    ),
    (
        OneGroupGets,
        &["topics::each_group_handles_all"],
        &["topics", "operations::two_groups_leave_two_records", "operations::a_group_is_listed_and_removed"],
    ),
    (StopsAtNul, &["settling::bodies_survive", "operations::a_final_error_fails_at_once"], &["operations"]),
    (DropsTheTrack, &["operations::a_final_error_fails_at_once"], &["operations", "settling", "leases"]),
    (CountsNothingInFlight, &["operations::figures_tell_the_truth"], &["operations::a_backlog_stays_on_the_broker"]),
    (
        RemovesNothing,
        &["settling::removing_a_browsed_one_removes_it", "settling::replay_leaves_no_stale_original"],
        &["operations::a_backlog_stays_on_the_broker"],
    ),
];
