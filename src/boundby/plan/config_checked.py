"""Kinds of models by how well plan reads them.

Each kind's default config of Transformers 5.23, as plan reads it and as the real model on the meta
device: `CHECKED` kinds agree within 3% in the parameters of their layers, `UNREAD` ones do not.
Of a model of text and images, the text model was compared.
"""

from __future__ import annotations

_CHECKED = """
    afmoe apertus arcee audio_spectrogram_transformer audioflamingo3 audioflamingo3_encoder axk1
    axk2 aya_vision beit bert bert_generation biogpt bitnet bloom bros camembert
    chinese_clip_vision_model clip_text_model clip_vision_model codegen cohere cohere2
    cohere2_moe cohere2_vision convbert cosmos3_edge cosmos3_edge_text cosmos3_edge_vision
    cosmos3_omni cwm data2vec_text data2vec_vision deberta deberta_v2 deepseek_v2 deepseek_v3
    deepseek_v32 deepseek_v4 deepseek_vl deepseek_vl_hybrid deit diffllama dinov2
    dinov2_with_registers dinov3_vit distilbert dots3_note dots3_note_text dpr dpt electra ernie
    ernie4_5 ernie4_5_moe esmc eurobert exaone4 exaone4_5 exaone_moe falcon fast_vlm flex_olmo
    fun_asr_nano fun_asr_nano_encoder fuyu gemma gemma2 gemma3 gemma3_text gemma4_unified
    gemma4_unified_text glm glm4 glm46v glm4v glm4v_text glm_image glm_image_text glm_moe_dsa
    glm_ocr glm_ocr_text glmasr glmga got_ocr2 gpt2 gpt_bigcode gpt_neo gpt_neox
    gpt_neox_japanese gpt_oss gpt_sw3 gptj gradium_phonon_tts granite granite_docling
    granite_docling_text granite_speech granite_speech_plus granite_swa granitemoe
    granitemoe_swa granitemoeshared gte helium hy_v3 hy_v4 hyperclovax hyperclovax_vision_v2
    ibert idefics2 idefics3 idefics3_vision ijepa imagegpt instructblip instructblipvideo
    internlm3 internvl internvl_vision iquestcoder jais2 janus jina_embeddings_v3 kimi_k25
    kimi_k25_vision kolibri1 laguna layoutlmv3 lighton_ocr llama llama4 llama4_text llava
    llava_next llava_next_video llava_onevision megatron_bert mellum mimo_v2_flash minicpm3
    minimax_m2 minimax_m3_vl minimax_m3_vl_text ministral3 mistral mistral3 mistral4
    mistral_large4 mistral_large4_text mixtral mlcd_vision_model modernbert modernbert_decoder
    modernvbert molmo2 molmo2_text moss_transcribe_diarize moss_transcribe_diarize_audio mpnet
    mpt mra muse_glimmer_vision muse_spark_vision musicflamingo nanochat
    nemotron3_5_transcribe_asr_audio nemotron3_diarization_audio nomic_bert nystromformer olmo
    olmo2 olmo3 olmoe openai_gpt openai_privacy_filter opt ovis2 paligemma patchtst pe_audio
    pe_audio_video pe_video perception_lm persimmon phi phi3 phimoe pixio pp_chart2table
    qianfan_ocr qianfan_ocr_vision qwen2 qwen2_5_vl qwen2_5_vl_text qwen2_audio qwen2_moe
    qwen2_vl qwen2_vl_text qwen3 qwen3_asr qwen3_moe qwen3_vl qwen3_vl_moe qwen3_vl_moe_text
    qwen3_vl_text rembert roberta roberta_prelayernorm roformer sam3 sam3_vit_model sapiens2
    seed_oss seggpt shieldgemma2 smollm3 smolvlm smolvlm_vision solar_open splinter stablelm
    starcoder2 tapas tipsv2 tipsv2_text_model tipsv2_vision_model ultrabert ultravbert
    vaultgemma vibevoice vibevoice_asr video_llama_3 video_llama_3_vision video_llava videomae
    vipllava vision_text_dual_encoder visual_bert vit vit_mae vit_msn vitdet voxtral
    voxtral_encoder voxtral_realtime_encoder xlm_roberta xlm_roberta_xl youtu
"""
# Side networks, shared, convolutional or narrower layers, which the sizes of a config do not show.
_UNREAD = """
    aria aria_text beam big_bird blip_2_qformer canine cohere_compass_vision cpmant csm ctrl
    decision_transformer doge embedding_gemma2 embedding_gemma2_text exaone4_5_vision flint
    gemma3n gemma3n_text gemma4 gemma4_audio gemma4_text gemma4_vision git glm4v_moe_vision
    glm4v_vision glm5_next_vision glm_image_vision glm_ocr_vision glmasr_encoder
    granite_docling_vision granite_speech5_encoder higgs_audio_v2 hrm_text hunyuan_vl_vision
    idefics inkling2_vision jetmoe kyutai_speech_to_text lasr_encoder layoutlm lfm2 lfm2_vl
    lightglue lilt longcat_flash longformer luke markuplm mgp_str mimi mimi_decoder mimi_encoder
    minicpm_ocr_vision minicpmv4_7_vision mobilebert moshi muse_glimmer muse_glimmer_assistant
    muse_glimmer_text muse_spark muse_spark_text nemotron3_5_transcribe_word_timestamp
    nemotron_asr_streaming_encoder neomme neucodec parakeet_encoder pe_audio_encoder
    phi4_multimodal pixtral pocket_tts pocket_tts_audio_tokenizer
    pocket_tts_audio_tokenizer_decoder pocket_tts_audio_tokenizer_encoder pp_ocrv5_mobile_rec
    pp_ocrv5_server_rec pp_ocrv6_small_rec qwen2_5_vl_vision qwen3_5_moe_vision qwen3_5_vision
    qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision radio roc_bert sam3_lite_text
    sam3_lite_text_text_model squeezebert timesfm timesfm2_5 timesformer tvp vilt vits vivit
    vjepa2 wav2vec2_bert xcodec2 xlnet xmod yolos yoso
"""

CHECKED = frozenset(_CHECKED.split())
UNREAD = frozenset(_UNREAD.split())
