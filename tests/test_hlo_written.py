from conformance.hlo import Written, written_collectives

TEXT = """\
  func.func public @main(%arg0: tensor<4x6xbf16>) -> (tensor<4x6xbf16> {jax.result_info = "result"}) {
    %0 = "stablehlo.all_reduce"(%arg1) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%arg2: tensor<bf16>, %arg3: tensor<bf16>):
      %9 = stablehlo.add %arg2, %arg3 : tensor<bf16>
      stablehlo.return %9 : tensor<bf16>
    }) : (tensor<2x3xbf16>) -> tensor<2x3xbf16>
    %1 = stablehlo.convert %0 : (tensor<2x3xbf16>) -> tensor<2x3xf32>
    %2 = "stablehlo.all_gather"(%1) <{all_gather_dim = 0 : i64}> : (tensor<2x3xf32>) -> tensor<4x3xf32>
    %3 = "stablehlo.all_reduce"(%2) <{x = 1}> ({
    }) : (tensor<f32>) -> tensor<f32>
"""  # noqa: E501


def test_every_collective_is_found_in_the_type_that_it_is_written_in() -> None:
    assert written_collectives(TEXT) == {
        Written("all-reduce", "bf16", 6),
        Written("all-gather", "f32", 6),
        Written("all-reduce", "f32", 1),
    }


def test_a_program_without_any_has_none() -> None:
    assert written_collectives("func.func @main() { return }") == frozenset()
