"""rapt plan and rapt bench."""

import unittest

from calls import rapt, rapt_json

BENCH_KEYS = """case pattern tokens heads dim dtype threads pass time_ms gflops peak_gflops
                fraction_of_peak extra_bytes""".split()


class Plan(unittest.TestCase):
    def test_counts_what_the_pattern_allows(self):
        plan = rapt_json("plan", "causal", "--tokens", "1000")
        self.assertEqual(plan["pairs"], 1000 * 1001 // 2)
        self.assertEqual((plan["whole_tiles"], plan["masked_tiles"]), (16 * 15 // 2, 16))

    def test_queries_are_the_newest_positions(self):
        self.assertEqual(rapt_json("plan", "causal", "--tokens", "100", "--queries", "1")["pairs"], 100)

    def test_draws(self):
        done = rapt("plan", "causal & window(512, 0)", "--tokens", "4096")
        self.assertEqual(done.returncode, 0)
        self.assertIn("causal & window(512, 0), 4096 queries, 4096 keys", done.stdout)

    def test_a_mistake_in_a_pattern_shows_its_column(self):
        done = rapt("plan", "causal & windw(512, 0)", "--tokens", "100")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("column 10", done.stderr)

    def test_over_ranks_counts_what_is_sent(self):
        plan = rapt_json("plan", "window(64, 64)", "--tokens", "4096", "--ranks", "4", "--gflops", "100")
        self.assertEqual((plan["ranks"], plan["estimated"], plan["stretches"]), (4, False, 4))
        self.assertEqual([rank["tokens"] for rank in plan["by_rank"]], [1024] * 4)
        self.assertEqual([rank["key_tiles_sent"] for rank in plan["by_rank"]], [1, 2, 2, 1])
        tile_bytes = 64 * 8 * 2 * 64 * 4
        self.assertEqual(plan["forward_bytes"], 6 * tile_bytes)
        self.assertEqual(plan["forward_bytes_needed"], 6 * tile_bytes)
        self.assertGreater(plan["both"]["efficiency"], 0.9)
        self.assertEqual(set(plan["drawing"]), set("0123"))

    def test_over_ranks_answers_for_sizes_no_machine_has(self):
        plan = rapt_json("plan", "window(4096, 0)", "--tokens", "100000000", "--ranks", "1000", "--gflops", "1000")
        self.assertTrue(plan["estimated"])
        self.assertEqual(sum(rank["tokens"] for rank in plan["by_rank"]), 100_000_000)
        self.assertAlmostEqual(plan["pairs"] / (4097 * 1e8), 1, places=2)
        slow = rapt_json("plan", "window(4096, 0)", "--tokens", "100000000", "--ranks", "1000", "--gflops", "1000",
                         "--network", "0.01")
        self.assertLess(slow["both"]["efficiency"], plan["both"]["efficiency"])

    def test_over_ranks_draws_and_predicts(self):
        done = rapt("plan", "causal", "--tokens", "8192", "--ranks", "2", "--strict", "--columns", "40")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[0], "0" * 10 + "1" * 20 + "0" * 10)
        self.assertIn("measured here", done.stdout)

    def test_over_ranks_refuses_what_it_cannot_plan(self):
        for wrong, word in ((["lsh(64, 4)"], "rapt bench ranks"), (["causal", "--queries", "3"], "excludes --ranks"),
                            (["causal", "--heads", "3", "--kv-heads", "2"], "multiple")):
            done = rapt("plan", *wrong, "--tokens", "1000", "--ranks", "2")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(word, done.stderr)


class Bench(unittest.TestCase):
    SMALL = ["bench", "attention", "--tokens", "128", "--heads", "2", "--repeat", "1"]

    def test_one_case_is_an_object_with_the_promised_keys(self):
        row = rapt_json(*self.SMALL, "--pattern", "causal", "--threads", "1")
        self.assertLessEqual(set(BENCH_KEYS), set(row))
        self.assertEqual((row["pattern"], row["pass"], row["dtype"]), ("causal", "forward", "f32"))
        self.assertEqual((row["tokens"], row["heads"], row["threads"]), (128, 2, 1))
        flops = 4 * 128 * 129 // 2 * 64 * 2
        self.assertAlmostEqual(row["gflops"] * row["time_ms"] * 1e6 / flops, 1, places=6)

    def test_several_cases_are_an_array(self):
        rows = rapt_json(*self.SMALL, "--tokens", "64", "--forward", "--backward")
        self.assertEqual([(row["tokens"], row["pass"]) for row in rows],
                         [(128, "forward"), (128, "backward"), (64, "forward"), (64, "backward")])

    def test_every_kind_of_score_runs(self):
        for option in (["--bias", "alibi"], ["--bias", "kerple_log"], ["--bias", "t5_bias"], ["--bias", "dense_bias"], ["--softcap", "20"],
                       ["--bias", "kerple_power"], ["--bias", "relative_keys"], ["--scale", "log_n"], ["--scale", "0.5"],
                       ["--sinks"], ["--stats"], ["--dropout", "0.1"], ["--kv-heads", "1"],
                       ["--value-dim", "48"], ["--batch", "2"], ["--queries", "3"]):
            with self.subTest(option):
                rows = rapt_json(*self.SMALL, "--forward", "--backward", *option)
                self.assertTrue(all(row["time_ms"] > 0 for row in rows))

    def test_rope_reports_bytes_and_what_copying_them_takes(self):
        for option in ([], ["--out-of-place"], ["--tokens-first"], ["--rotated", "16"]):
            rows = rapt_json("bench", "rope", "--tokens", "64", "--heads", "2", "--repeat", "1",
                             "--dtype", "f32", "f16", *option)
            self.assertEqual([(row["layout"], row["dtype"]) for row in rows],
                             [("half_split", "f32"), ("half_split", "f16"),
                              ("interleaved", "f32"), ("interleaved", "f16")])
            self.assertEqual(rows[0]["bytes"], 2 * 4 * 2 * 64 * 128)
            self.assertTrue(all(row["gbytes"] > 0 and row["copy_gbytes"] > 0 for row in rows))

    def test_gemm_times_layers_against_the_peak(self):
        rows = rapt_json("bench", "gemm", "--rows", "1", "16", "--in", "64", "--out", "32",
                         "--pass", "forward", "step", "--repeat", "1")
        self.assertEqual([(row["rows"], row["in"], row["out"], row["pass"]) for row in rows],
                         [(1, 64, 32, "forward"), (1, 64, 32, "step"),
                          (16, 64, 32, "forward"), (16, 64, 32, "step")])
        self.assertTrue(all(row["gflops"] > 0 and row["fraction_of_peak"] > 0 for row in rows))
        narrow = rapt_json("bench", "gemm", "--rows", "1", "--in", "64", "--dtype", "bf16",
                           "--repeat", "1")
        self.assertEqual((narrow["dtype"], narrow["out"]), ("bf16", 64))

    def test_lsh_recall_grows_with_the_rounds(self):
        rows = rapt_json("bench", "lsh", "--recall", "--tokens", "512", "--rounds", "1", "4",
                         "--buckets", "16", "4x4", "--heads", "2", "--chunk", "32")
        self.assertEqual([(r["rounds"], r["buckets"]) for r in rows],
                         [(1, "16"), (1, "4x4"), (4, "16"), (4, "4x4")])
        self.assertLess(rows[0]["top_recall"], rows[2]["top_recall"])
        self.assertLess(rows[2]["keys_met"], rows[2]["mass_recall"])

    def test_lsh_decode_times_a_token(self):
        row = rapt_json("bench", "lsh", "--decode", "--tokens", "256", "--rounds", "1",
                        "--buckets", "16", "--heads", "1", "--repeat", "1")
        self.assertGreater(row["step_us"], 0)

    RANKS = ["bench", "ranks", "--tokens", "512", "--heads", "2", "--repeat", "1"]

    def test_ranks_report_what_they_send_and_how_far_they_are_from_one(self):
        row = rapt_json(*self.RANKS, "--pattern", "window(64, 64)")
        self.assertEqual((row["case"], row["backend"], row["ranks"], row["pass"]), ("custom", "threads", 2, "both"))
        tile_bytes = 64 * 2 * 2 * 64 * 4
        self.assertEqual(row["bytes_sent"], 2 * (tile_bytes + 2 * tile_bytes))  # keys there twice, gradients back
        self.assertLessEqual(row["bytes_needed"], row["bytes_sent"])
        self.assertTrue(row["time_ms"] > 0 and row["predicted_ms"] > 0 and 0 <= row["waiting_share"] <= 1)
        self.assertLess(row["max_difference_ulps"], 100)

    def test_strict_ranks_have_the_bits_of_one(self):
        rows = rapt_json(*self.RANKS, "--pattern", "causal", "--strict", "--ranks", "1", "2", "--pass", "forward", "both")
        self.assertEqual([(row["ranks"], row["pass"]) for row in rows],
                         [(1, "forward"), (1, "both"), (2, "forward"), (2, "both")])
        self.assertTrue(all(row["same_bits"] and row["max_difference_ulps"] == 0 for row in rows))
        self.assertEqual([row["bytes_sent"] for row in rows[:2]], [0, 0])

    def test_ranks_beyond_the_cpus_are_warned_about(self):
        done = rapt(*self.RANKS, "--ranks", "64", "--dtype", "bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("64 ranks of 1 thread share", done.stderr)

    def test_hashed_attention_over_ranks(self):
        row = rapt_json(*self.RANKS, "--pattern", "lsh(64, 2)")
        self.assertTrue("refused" in row or row["same_bits"])

    def test_a_standard_case_of_ranks_excludes_a_described_one(self):
        done = rapt("bench", "ranks", "--case", "causal", "--tokens", "64")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_peak(self):
        peak = rapt_json("bench", "peak", "--threads", "1")
        self.assertTrue(all(peak[key] > 0 for key in ("fma_gflops", "exp_gops", "read_gbytes")))
