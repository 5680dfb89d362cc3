"""What the names of kernels tell, for each library whose kernels appear in traces."""

from __future__ import annotations

import pytest

from boundby.model.kernel_names import kernel_name

NAMES = {
    "matrix product": [
        "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long)",
        # cuBLAS, cuBLASLt
        "nvjet_sm90_tst_128x64_64x8_4x2_h_bz_bias_NNT",
        "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTN",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(cublasGemmSmallNParams<float>)",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16>(cublasGemvParams<int>)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "volta_sgemm_128x64_nn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas",
        # CUTLASS
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(x)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>(x)",
        # Triton, Inductor
        "triton_tem_fused_addmm_relu_4",
        "triton_mm",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu",
        "matmul_kernel_persistent",
        "_fp8_gemm_kernel",
        # vLLM, SGLang
        "fused_moe_kernel",
        "void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8, 4, 8>(int4 const*)",
        "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 8>(__half const*)",
        "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int)",
        "_w8a8_block_fp8_matmul",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>(int)",
        "_lora_shrink_kernel",
        # FlashInfer and TensorRT-LLM, DeepGEMM
        "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_sm100f",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 64u, 128u>(float*)",
        # TransformerEngine
        "void transformer_engine::nvte_cublas_gemm_kernel<float>(float*)",
        # hipBLASLt, Tensile, aiter, CK
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
        "_ZN7ck_tile6kentryILi1ENS_10GemmKernelINS_13GemmTile1DPartitionerEEE",
        "_ZN5aiter35fmoe_bf16_blockscaleFp8_g1u1_silu",
        "_gemm_a8w8_blockscale_kernel",
        # oneDNN and XPU, MTIA, Ascend
        "gemm_kernel",
        "xetla::hgemm_kernel<sycl::half>",
        "mtia_fc_kernel",
        "MatMulV2_bf16_ND",
        "aclnnMatmul_MatMulCommon_MatMulV2",
        "GroupedMatmul",
    ],
    "convolution": [
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int)",
        "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_128x64_16x6>",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3",
        "triton_tem_fused_convolution_2",
        "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4>>(ConvParamsBase)",
        "gen9_conv_fwd",
        "Conv2D",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(x)",
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>(x)",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<x>>>(y)",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>(x)",
        "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<128u, 1u>(x)",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(x)",
        "void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128>(float*)",
        "kernel_unified_attention_2d",
        "_fwd_grouped_kernel_stage1",
        "_attn_fwd",
        "triton_tem_fused_flex_attention_0",
        "flash_fwd_splitkv_mla_kernel",
        "sage_fwd",
        "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
        "_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_",
        "_ZN5aiter27pa_bf16_pertokenFp8_gqa8_2tg_4wE",
        "micro_sdpa",
        "FlashAttentionScoreGrad",
        "FusedInferAttentionScore",
    ],
    "normalization": [
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*)",
        "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
        "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, long)",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        "void transformer_engine::normalization::ln_fwd_tuned_kernel<Kernel_traits<x>>(y)",
        "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)",
        "MIOpenBatchNormFwdTrainSpatial",
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePass",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16>(x)",
        "scaled_upper_triang_masked_softmax_warp_forward",
        "LayerNormV3",
        "AddRmsNorm",
        "SoftmaxV2",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<float>>(x)",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*)",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<true, 128u>(x)",
        "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(x)",
        "per_token_group_quant_8bit_kernel",
        "void transformer_engine::cast_transpose_general_kernel<true>(x)",
        "at::native::xpu::VectorizedElementwiseKernel<4, at::native::xpu::GeluFunctor>",
        "SubTensorOpWithCastTensor1d",
        "ref_eltwise_fwd",
        "Add_kernel",
        "Cast",
        "SwiGlu",
        "DropOutDoMask",
    ],
    "reduction": [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, MeanOps<float>>>(x)",
        "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
        "at::native::xpu::ReduceKernel<1, at::native::ReduceOp<float>>",
        "void cub::DeviceReduceSingleTileKernel<cub::DeviceReducePolicy<float>>(x)",
        "ReduceSum",
        "void at::native::lpnorm_cleanup<float, (at::native::NormType)1>(float const*)",
    ],
    "copy": [
        "dma_request",
        "void at::native::vectorized_elementwise_kernel<8, at::native::half_copy_kernel_cuda(x)>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<2u>>(x)",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char>(x)",
        "void flashinfer::AppendPagedKVCacheKernel<128u, 8u>(x)",
        "batched_transpose_32x32_half",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        "void nchwToNhwcKernel<float, float, float, true, false>(int)",
        "simple_reorder",
        "TransData",
        "ZerosLike",
    ],
    "communication": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "rcclGenericKernel<1>(ncclDevComm*)",
        "mscclKernel_Sum_float_LL(ncclDevComm*)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
        "void deep_ep::internode_ll::combine<true, 3, 7168, 10>(void*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>(y)",
        "hcom_allReduce__123_0",
    ],
    "embedding": [
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(x)",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)",
        "void split_embedding_backward_codegen_adagrad_unweighted_kernel_warp_per_row_1<float>(x)",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",
        "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*)",
        "GatherV2",
    ],
    "sort": [
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<Policy800, false, long>(x)",
        "void cub::DeviceScanKernel<cub::DeviceScanPolicy<int>::Policy600, int*, int*>(x)",
        "void at::native::(anonymous namespace)::sbtopk::gatherTopK<float, unsigned int>(x)",
        "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, int>(float const*)",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(float*)",
        "void vllm::moe::moe_align_block_size_kernel<int>(int*)",
        "void moe::dev::routing::routingIndicesHistogramKernel<KernelParams<__nv_bfloat16>>(x)",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, "
        "FusedAdamMathFunctor<float, 4>>(x)",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>>(int)",
        "void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0, 256, 1>(x)",
        "ApplyAdamW",
    ],
    "generated": [
        "triton_poi_fused__unsafe_view_mul_silu_2",
        "triton_red_fused_add_mean_mul_pow_rsqrt_1",
        "triton__0d1d2d3d4d5d",
        "input_reduce_fusion_12",
        "loop_add_fusion",
    ],
}


@pytest.mark.parametrize(
    ("expected", "name"), [(expected, name) for expected, names in NAMES.items() for name in names]
)
def test_kernel_class_follows_from_its_name(expected: str, name: str) -> None:
    assert kernel_name(name).kernel_class == expected


@pytest.mark.parametrize("name", ["", "kernel", "my_kernel_3", "foo(float*)", "<lambda>"])
def test_unknown_name_has_no_class(name: str) -> None:
    assert kernel_name(name).kernel_class is None


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "bfloat16"),
        ("nvjet_hsh_64x8_64x16_4x1_v_bz_NNT", "float16"),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1", "tf32"),
        ("volta_sgemm_128x64_nn", "float32"),
        (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16",
            "bfloat16",
        ),
        ("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_MT16x16x128_MI16", "float32"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8", "bfloat16"),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3", "float32"),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16", "float4"),
        ("void vllm::rms_norm_kernel<float, 8, 2>(float*)", "float32"),
    ],
)
def test_dtype_follows_from_the_kernel_name(name: str, dtype: str) -> None:
    assert kernel_name(name).dtype == dtype


def test_argument_types_in_the_name_are_ignored() -> None:
    found = kernel_name("void foo_relu<float>(cublasGemvParams<float>, ncclDevComm*)")
    assert found.kernel_class == "elementwise"
